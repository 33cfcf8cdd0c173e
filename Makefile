# A thin front door; the work is done by CMake, ctest, pytest and the scripts in tools/.
JOBS ?= 2
PYTHON := .venv/bin/python
# Tests wait for a part of their time.
WORKERS := $(shell expr $(JOBS) \* 2)
RELEASE := build/release
ASAN := build/asan

# What has passed is not run again unless it may have changed, or AGAIN is set (tests/unit.py, tests/once.py).
ONCE := $(if $(AGAIN),,CAIRN_ONCE=1)

TRIALS := tests/trial tests/crash tests/mpi tests/attack

SHELL := bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup servers build demo s3-demo test test-s3 check soak repeat long bench bench-peers fuzz conformance conformance-frameworks format lint docs wheel install clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 25

setup:  ## install what is missing (Debian packages as root; Python packages into .venv)
	@tools/setup.sh

servers:  ## setup, and what object stores are built from and tried with
	@tools/setup.sh servers

build:  ## the command, the library and the Python package, in build/release
	@tools/first_build.sh release $(JOBS)

demo:  ## four ranks save and three load; the command and PyTorch look at the result
	@tools/first_build.sh release $(JOBS) cairn_cli train
	@tools/demo.sh

s3-demo: servers  ## the same in a bucket of a server on loopback
	@tools/build.sh s3 $(JOBS) cairn_cli train
	@tools/s3_demo.sh

test-s3: servers  ## object stores, which are not part of the build yet: on servers of our own and on Ceph's gateway
	@tools/build.sh s3 $(JOBS) cairn_cli cairn_python s3_server s3_trial s3_kills sign_requests storage_test upkeep_test replay_s3_xml
	@ctest --test-dir build/s3 --output-on-failure -j $(JOBS) -R 'S3|s3|Gc'
	@CAIRN_BUILD=build/s3 PYTHONPATH=build/s3/python $(PYTHON) -m pytest tests/s3 -n $(JOBS) --dist loadfile

test:  ## everything that must hold; AGAIN=1 also runs what passed on this very tree before
	@tools/first_build.sh asan $(JOBS) unit replay
	@tools/build.sh release $(JOBS)
	@tests/unit.py $(ASAN) --jobs $(WORKERS)
	@$(ONCE) $(PYTHON) -m pytest tests -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=30 --durations-min=5
	@tools/lint.sh quick

check: setup  ## the unit tests of the rooms that were edited, without sanitizers; ROOM="storage save" picks them
	@tools/check.sh $(JOBS) $(ROOM)

soak: build  ## kills, lost power, faults, flips, simulated ranks and fuzzing for MINUTES (60); adds to the ledger
	@tools/build.sh fuzz $(JOBS) fuzzers
	@$(PYTHON) tools/soak.py $(or $(MINUTES),60)

repeat: build  ## the trials of `make test` TIMES (20) times, until one fails: a test that fails now and then is a fault
	@for i in $$(seq $(or $(TIMES),20)); do $(PYTHON) -m pytest $(TRIALS) -n $(JOBS) --dist loadfile || exit 1; done

long: build  ## the long tests; the command under sanitizers; the unit tests in the debug and tsan builds
	@$(PYTHON) -m pytest tests -m slow -n $(JOBS) --dist worksteal --durations=40
	@tools/build.sh release $(JOBS) benches
	@tools/build.sh asan $(JOBS)
	@ASAN_OPTIONS=detect_leaks=0 CAIRN_CLI=$(ASAN)/cairn $(PYTHON) -m pytest tests/cli -n $(JOBS) -k 'not bounded_memory'
	@for preset in debug tsan; do tools/build.sh $$preset $(JOBS) unit replay && tests/unit.py build/$$preset --jobs $(JOBS) || exit 1; done

bench: build  ## measure against stock PyTorch and the machine's limits; ONLY=prefix picks rows
	@tools/build.sh release $(JOBS) benches
	@$(PYTHON) bench/run.py $(if $(ONLY),--only $(ONLY))

bench-peers: setup  ## install what the rows of s3 are measured against, into build/peers
	@bench/peers.sh

fuzz: setup  ## each fuzz target for SECONDS (60) seconds
	@tools/build.sh fuzz $(JOBS) fuzzers
	@tools/fuzz.sh $(or $(SECONDS),60)

conformance: build  ## PyTorch's own tests of DCP; PYTORCH=a checkout at the 2.13 cut; SUBCLASSES=1: all parts subclassed; TORCH=x.y: that torch
ifdef TORCH
	@tools/other_torch.sh $(TORCH)
else
	@$(PYTHON) tests/conformance/run.py $(or $(PYTORCH),$(error say where PyTorch's sources are: make conformance PYTORCH=path)) $(if $(ONLY),--only $(ONLY)) $(if $(SUBCLASSES),--subclasses)
endif

conformance-frameworks: build  ## Megatron-core, torchao, torchtitan, accelerate and Lightning through cairn and stock
	@tools/frameworks.sh

format: setup  ## clang-format and ruff
	@tools/sources.sh | xargs clang-format-14 -i
	@.venv/bin/ruff format --quiet python tools

lint: setup  ## layers, paths, format, ruff, mypy, spelling, clang-tidy (of what has changed)
	@tools/lint.sh $(JOBS)

docs: setup  ## build/docs/site: the pages of docs/, of the headers and of the docstrings; links are looked at
	@tools/docs.sh

wheel: setup  ## dist/: a wheel that installs without a compiler (manylinux_2_35), tried, and the source archive
	@tools/wheel.sh $(JOBS)

install: build  ## into PREFIX (/usr/local)
	cmake --install $(RELEASE) --prefix $(or $(PREFIX),/usr/local)

clean:  ## remove what was built; .venv stays
	rm -rf build
