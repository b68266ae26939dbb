#!/usr/bin/env bash
# Run a long suite, one test function at a time: tests/suite.sh NAME MARKER JOBS [WORD]
#
# A green part leaves a stamp below build/suites/<commit>/<name>, so that a stopped suite goes on
# where it stopped. In a checkout with changed files nothing is kept from earlier. A skipped test
# is red, but for want of a GPU. WORD runs only the tests whose id holds it. Exit code: 0 all green,
# 1 a part is red or missing, 2 nothing to run.
set -uo pipefail
self=$(realpath "$0")
cd "${SUITE_ROOT:-$(dirname "$self")/..}" || exit 2
export OMP_NUM_THREADS=1
python=${PYTHON:-.venv/bin/python}

part() { # one test function
  local log="$folder/${1//[\/:]/_}"
  [ -e "$log.green" ] && return 0
  rm -f "$log.jsonl"
  if timeout -k 10 4h "$python" -m pytest "$1" -m "$marker" -p no:cacheprovider \
      --figures "$log.jsonl" > "$log.log" 2>&1 < /dev/null \
      && ! grep '^SKIPPED' "$log.log" | grep -qv 'torch finds no CUDA device here'; then
    mv "$log.log" "$log.green"
    echo "green $1"
  else
    echo "RED   $1: see $log.log"
  fi
}

if [ "$1" = --part ]; then
  part "$2"
  exit 0
fi
name=$1 marker=$2 jobs=$3 word=${4:-}
commit=$(git rev-parse --short=12 HEAD) || exit 2
if [ -n "$(git status --porcelain)" ]; then
  commit="$commit-changed"
  rm -rf "build/suites/$commit/$name"
fi
folder="build/suites/$commit/$name"
mkdir -p "$folder"
export folder marker SUITE_ROOT="$PWD" PYTHON="$python"
"$python" -m pytest --collect-only -q -p no:cacheprovider -m "$marker" > "$folder/collected.txt" 2>&1
grep -E '^[^ ]+\.py::' "$folder/collected.txt" | sed 's/\[.*//' | grep -F -- "$word" | sort -u > "$folder/parts.txt"
total=$(wc -l < "$folder/parts.txt")
if [ "$total" = 0 ]; then
  tail -n 20 "$folder/collected.txt" >&2
  exit 2
fi
xargs -a "$folder/parts.txt" -d '\n' -n 1 -P "$jobs" bash "$self" --part
green=0
while read -r id; do
  [ -e "$folder/${id//[\/:]/_}.green" ] && green=$((green + 1))
done < "$folder/parts.txt"
"$python" -m tests.proof.figures "$folder" || exit 1
echo "$name at $commit: $green of $total parts green"
[ "$green" = "$total" ]
