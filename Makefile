# Two commands do everything, set-up included: `make bench` and `make test`.
BUILD ?= build
ARGS ?=

.PHONY: all build bench compare links test check fuzz asan tsan install uninstall format clean setup setup-tests setup-verbs setup-guide help torture matrix other verbs guide pictures
all: build

help:
	@echo 'make bench    build and run the main job (ARGS="--op read" passes options)'
	@echo 'make test     build and run every test: the suites, fuzzing for 60 s per target, the sanitizer builds'
	@echo 'make check    build and run only the tests of the plain build, including a million torture operations'
	@echo 'make fuzz     fuzz every parser with libFuzzer (SECONDS=60)'
	@echo 'make build    build only: $(BUILD)/weft, libweft.so, libweft.a'
	@echo 'make asan     run the tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make tsan     run the tests under ThreadSanitizer'
	@echo 'make matrix   run the tests of the plain build in bare roots of Debian 12 and 13 (needs root and debootstrap)'
	@echo 'make other    run the quick tests on the Debian release that this host does not run; part of our CI'
	@echo 'make verbs    run weft over real verbs, on Soft-RoCE devices in an emulated VM (about half an hour; ARGS="killed link")'
	@echo 'make compare  compare weft with bare libfabric, UCX, MPI, iperf3, memcpy (ARGS=--quick, --json, "--svg FILE")'
	@echo 'make links    measure how much of 32 shaped links over real TCP weft uses (needs root)'
	@echo 'make torture  run random operations and faults for a minute, judged by an oracle (SEED=, MINUTES=)'
	@echo 'make guide    build the guide in docs/guide/ as a site in $(BUILD)/guide (needs pandoc)'
	@echo 'make pictures draw the pictures of README and guide again'
	@echo 'make install  install under PREFIX (default: the last one given, /usr/local at first), DESTDIR respected'
	@echo 'make uninstall  remove what make install installed; takes the same PREFIX and DESTDIR'

setup:
	@scripts/setup

# Also installs what only the tests need, where it is available.
setup-tests:
	@scripts/setup --tests

build: setup
	@scripts/build $(BUILD) $(abspath $(PREFIX))

bench: build
	@$(BUILD)/weft bench $(ARGS)

compare: build
	@scripts/compare.py --build $(BUILD) $(ARGS)

links: build
	@bench/links.py --build $(BUILD) $(ARGS)

check: setup-tests build
	@scripts/run-tests $(BUILD)

test: check fuzz asan tsan

# 77: no clang with libFuzzer here; the script has said so.
fuzz: setup-tests build
	@BUILD=$(BUILD) scripts/fuzz $(or $(SECONDS),60) || test $$? = 77

asan: setup
	@scripts/run-tests build-asan address,undefined

tsan: setup
	@scripts/run-tests build-tsan thread

matrix:
	@scripts/matrix $(ARGS)

# 77: no root, no debootstrap or no network here; the script has said so.
other:
	@scripts/matrix --fast --other $(ARGS) || test $$? = 77

setup-verbs:
	@scripts/setup --verbs

# 77: no such VM can be made here; the script has said so.
verbs: setup-verbs build
	@BUILD=$(BUILD) scripts/verbs $(ARGS) || test $$? = 77

# Random operations and faults for a minute with a new seed, or: SEED=7 MINUTES=10 make torture
torture: build
	@$(BUILD)/tests/torture --seed $(or $(SEED),$$(date +%s)) --minutes $(or $(MINUTES),1) $(ARGS)

setup-guide:
	@scripts/setup --guide

guide: setup-guide
	@scripts/guide check && scripts/guide site $(BUILD)/guide

# The chart's figures are those of this host's CPU: draw it where nothing else runs.
pictures: build
	@$(BUILD)/weft topo --sim p5 --svg docs/guide/topology.svg
	@$(BUILD)/weft ladder --sim p5 --rounds 7 --svg docs/guide/ladder.svg

install: build
	@meson install -C $(BUILD) --no-rebuild

uninstall:
	@scripts/uninstall $(BUILD) $(abspath $(PREFIX))

format:
	@clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf build build-asan build-tsan build-matrix
