#!/usr/bin/env bash
# The whole suite where it is not at home: what chance, load, names, zones and modes can turn red.
#   tests/elsewhere.sh [CONDITION ...]     all of them: busy host locale open closed
#   PYTEST="python -m pytest" ARGUMENTS="-n 2 --dist worksteal" tests/elsewhere.sh busy
# Ends with one line for each condition, and with 1 if any was red. Nothing is installed.
set -uo pipefail
cd "$(dirname "$0")/.."
pytest="${PYTEST:-.venv/bin/python -m pytest}"
arguments="${ARGUMENTS:--n 2 --dist worksteal}"
here="${BUILD:-build/elsewhere}"
mkdir -p "$here/locales"
export OMP_NUM_THREADS=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
loops=
stop() { [ -z "$loops" ] || kill $loops 2>/dev/null; loops=; }
trap stop EXIT
trap 'exit 130' INT TERM

# A locale of Debian's package `locales`, compiled into our own folder; C where there is none.
compiled() {
  [ -e "$here/locales/$1.UTF-8" ] || localedef -i "$1" -f UTF-8 "$here/locales/$1.UTF-8" 2>/dev/null
  if [ -e "$here/locales/$1.UTF-8" ]; then echo "$1.UTF-8"; else echo C; fi
}

# A machine called `a`, in a name space of its own.
named_a() {
  local own="--uts"
  [ "$(id -u)" = 0 ] || own="--user --map-root-user --uts"
  unshare $own sh -c 'hostname a && exec "$@"' named "$@"
}

condition() {
  case "$1" in
    busy)   for _ in 1 2; do (while :; do :; done) & loops="$loops $!"; done
            $pytest $arguments; found=$?; stop; return $found ;;
    host)   named_a env USER=a LOGNAME=a HOSTNAME=a $pytest $arguments ;;
    locale) LOCPATH="$PWD/$here/locales" LC_ALL="$(compiled tr_TR)" LANG="$(compiled de_DE)" \
              TZ=Asia/Kathmandu $pytest $arguments ;;
    open)   (umask 000; TZ=Pacific/Kiritimati $pytest $arguments) ;;
    closed) (umask 077; TZ=America/St_Johns LC_ALL=C $pytest $arguments) ;;
    *)      echo "no such condition: $1" >&2; return 2 ;;
  esac
}

red=0
table=
for name in "${@:-busy host locale open closed}"; do
  for one in $name; do
    started=$SECONDS
    condition "$one" >"$here/$one.log" 2>&1
    found=$?
    [ "$found" = 0 ] || red=1
    line="$(printf '%-7s %-4s %5d s  %s' "$one" "$([ "$found" = 0 ] && echo ok || echo RED)" \
      $((SECONDS - started)) "$(tail -n 1 "$here/$one.log")")"
    echo "$line"
    table="$table$line"$'\n'
  done
done
printf '%s' "$table" >"$here/table.txt"
exit "$red"
