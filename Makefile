# The short names. `make release` and `make test` are all the set-up a fresh clone needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCK   := deployments/constraints.txt
SPEC   ?= examples/breast-cancer/release.yaml
JOBS   ?= 2

.PHONY: help release release-all release-bayes population mst external local test test-slow test-crash nightly proof check format serve bench bench-weights bench-neural bench-local paper-quick paper clean

help:
	@echo "make release     install what a release needs, and publish the worked example"
	@echo "make test        install what the tests need, and run the fast ones"
	@echo "make test-slow   the others that every change must pass"
	@echo "make test-crash  kill matrix, races, tampering; make nightly: longer variants, fuzzing"
	@echo "make test-oldest the tests with the oldest dependencies admitted; make test-newest: the newest"
	@echo "make test-gpu    the tests that need a GPU; their twins on the CPU run everywhere"
	@echo "make proof       privacy proof suite at its full figures; all three resume, and end with a table"
	@echo "make check       ruff, mypy, plain words, stale results; make site: the documents as a site"
	@echo "make release-all the same data with all 30 columns, at epsilon 1"
	@echo "make release-bayes the worked example's columns from Bayesian synthesis"
	@echo "make population  a simulated population of 50,000 people with known truth"
	@echo "make mst         the same population from MST, corrected by weights"
	@echo "make external    rows that two other tools made of the same population, corrected by weights"
	@echo "make local       reports that are private before they are collected, from simulated people"
	@echo "make serve       a local Prefect server and worker with the scheduled deployment"
	@echo "make year        an institution's year on simulated tables: server, worker, site, back-fill"
	@echo "make year-story  in another terminal: its incidents, each with what must hold afterwards"
	@echo "make bench DATA=folder            speed: ours against peers and the machine, in ratios (resumes)"
	@echo "make bench-weights DATA=folder    measured weights on five data sets, one total epsilon (resumes)"
	@echo "make bench-neural DATA=folder     neural generators with and without weights (resumes)"
	@echo "make bench-mnist DATA=folder      images by convolutions at the paper's epsilon, on torch"
	@echo "make bench-boards DATA=folder     NIST's and Tab-PE's scores at epsilon 1 (resumes)"
	@echo "make bench-local DATA=folder      learning from local reports: excess risk by their number"
	@echo "make paper-quick DATA=folder      the paper's tables in 2 runs, its other figures in 1"
	@echo "make paper DATA=folder            10 runs, MNIST too; it resumes where it stopped"

$(VENV)/.pipeline: pyproject.toml $(LOCK)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pipeline into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LOCK) -e '.[pipeline]'
	@touch $@

$(VENV)/.test: $(VENV)/.pipeline
	@echo "installing the test tools and torch (0.2 GB for the CPU, gigabytes with CUDA) into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LOCK) -e '.[pipeline,neural,test,docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.pipeline
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LOCK) -e '.[pipeline,neural,bench]'
	@touch $@

release: $(VENV)/.pipeline
	@$(BIN)/python examples/prepare.py breast-cancer
	@$(BIN)/dpiw release $(SPEC)

release-all: $(VENV)/.pipeline
	@$(BIN)/python examples/prepare.py breast-cancer-all
	@$(BIN)/dpiw release examples/breast-cancer-all/release.yaml

release-bayes: $(VENV)/.pipeline
	@$(BIN)/python examples/prepare.py breast-cancer
	@$(BIN)/dpiw release examples/breast-cancer-bayes/release.yaml

population: $(VENV)/.pipeline
	@$(BIN)/python examples/prepare.py population
	@$(BIN)/dpiw release examples/population/release.yaml

mst: $(VENV)/.pipeline
	@$(BIN)/python examples/prepare.py population
	@$(BIN)/dpiw release examples/population/mst.yaml
	@$(BIN)/dpiw verify .dpiw/releases/population-mst-once-* --key .dpiw/keys/demo.pub

external: $(VENV)/.pipeline
	@$(BIN)/python examples/prepare.py population
	@for tool in smartnoise dpmm; do \
	    $(BIN)/dpiw release examples/external/$$tool.yaml && \
	    $(BIN)/dpiw verify .dpiw/releases/external-$$tool-once-* --key .dpiw/keys/demo.pub || exit 1; \
	done

local: $(VENV)/.pipeline
	@$(BIN)/python examples/local/commute.py report
	@$(BIN)/dpiw local collect examples/local/collection.yaml
	@$(BIN)/python examples/local/commute.py analyse

# With bytecode kept, whatever the environment says: else each of its many processes, and each run
# of it, compiles all that it imports.
test: $(VENV)/.test
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-slow: $(VENV)/.test
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS) --dist worksteal \
	    -m "slow and not crash and not nightly and not proof"

# What chance, load, names, zones and modes can turn red: five whole runs, one line each.
.PHONY: test-elsewhere
test-elsewhere: $(VENV)/.test
	@PYTEST="$(BIN)/python -m pytest" ARGUMENTS="-n $(JOBS) --dist worksteal" tests/elsewhere.sh $(ONLY)
# The suite with other versions than those of the constraints, each in an environment of its own.
# What an analyst's light install must do runs in one, with an older pandas than a curator may have.
LIGHT = $(addprefix tests/dpiw/analysis/test_,tables.py formula.py descriptive.py plots.py coverage.py)
.PHONY: test-oldest test-newest
test-oldest: $(VENV)/.test
	@mkdir -p build
	@$(BIN)/python -m tests.oldest > build/oldest.txt
	@test -x build/oldest/bin/python || $(PYTHON) -m venv build/oldest
	@build/oldest/bin/python -m pip install --quiet --disable-pip-version-check -c build/oldest.txt '.[pipeline,neural,test,docs]'
	build/oldest/bin/python -m pytest -n $(JOBS) --dist worksteal
	@$(BIN)/python -m tests.oldest formula plot > build/light.txt
	@test -x build/light/bin/python || $(PYTHON) -m venv build/light
	@build/light/bin/python -m pip install --quiet --disable-pip-version-check -c build/light.txt '.[formula,plot]' pytest
	build/light/bin/python -m pytest --noconftest $(LIGHT)

test-newest:
	@test -x build/newest/bin/python || $(PYTHON) -m venv build/newest
	@build/newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager '.[pipeline,neural,test,docs]'
	build/newest/bin/python -m pytest -n $(JOBS) --dist worksteal

# What needs a GPU; where torch finds none, each test says so and is skipped. The twins on the CPU run in every suite.
.PHONY: test-gpu
test-gpu: $(VENV)/.test
	$(BIN)/python -m pytest -m gpu tests/dpiw/methods/neural tests/dpiw/run tests/flows

# The long suites keep a stamp for each green part and commit below build/suites, so that they can be
# stopped and run again. ONLY=word runs the tests whose id holds the word.
SUITE = @PYTHON=$(BIN)/python tests/suite.sh $@
test-crash: $(VENV)/.test
	$(SUITE) crash 1 $(ONLY)

# With a container engine, and a network or images for it.
.PHONY: test-containers
test-containers: $(VENV)/.test
	@PYTHON=$(BIN)/python tests/containers.sh

nightly: $(VENV)/.test
	$(SUITE) nightly 1 $(ONLY)

proof: $(VENV)/.test
	$(SUITE) proof $(JOBS) $(ONLY)

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/words.py
	$(BIN)/python tests/stale.py

# Strict: a page that is in no menu, a link or an anchor that leads nowhere ends it.
.PHONY: site
site: $(VENV)/.test
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open build/site/index.html, or, to search it too: $(BIN)/python -m mkdocs serve"

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

serve: $(VENV)/.pipeline
	@$(BIN)/python examples/prepare.py breast-cancer
	@PATH="$(abspath $(BIN)):$$PATH" deployments/serve.sh

.PHONY: year year-story
year: $(VENV)/.pipeline
	@$(BIN)/python examples/year/year.py serve

year-story: $(VENV)/.pipeline
	@$(BIN)/python examples/year/year.py story

# DATA: a folder with adult.csv and banknote.csv; OPTIONS: see benchmarks/bench.py.
bench: $(VENV)/.bench
	$(BIN)/python benchmarks/bench.py $(if $(DATA),--data $(DATA)) $(OPTIONS)

bench-weights: $(VENV)/.bench
	$(BIN)/python benchmarks/weights_table.py --data $(DATA) --name measured_table --jobs 2 $(if $(QUICK),--quick)

bench-neural: $(VENV)/.bench
	$(BIN)/python benchmarks/weights_table.py --data $(DATA) --name neural_table --jobs 2 $(if $(QUICK),--quick)

.PHONY: bench-mnist
bench-mnist: $(VENV)/.test
	OMP_NUM_THREADS=1 PYTHONPATH=. $(BIN)/python benchmarks/mnist.py --data $(DATA)

.PHONY: bench-boards
bench-boards: $(VENV)/.bench
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/nist.py --data $(DATA)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/tabpe.py --data $(DATA)

bench-local: $(VENV)/.pipeline
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/local_iwp.py --data $(DATA)

paper-quick: $(VENV)/.bench
	$(BIN)/python benchmarks/paper.py --data $(DATA) --jobs $(JOBS) --quick

paper: $(VENV)/.bench
	$(BIN)/python benchmarks/paper.py --data $(DATA) --jobs $(JOBS)

clean:
	rm -rf $(VENV) build dist
