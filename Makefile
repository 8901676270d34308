# Two commands do everything, set-up included: `make bench` and `make test`.
BUILD ?= build
ARGS ?=

.PHONY: all build bench compare links test check fuzz asan tsan install uninstall format clean setup setup-tests help torture matrix other
all: build

help:
	@echo 'make bench    build and run the main job (ARGS="--op read" passes options)'
	@echo 'make test     build and run every test: the suites, fuzzing for 60 s a target, the sanitizer builds'
	@echo 'make check    build and run the tests of the plain build alone, a million torture operations included'
	@echo 'make fuzz     every parser under libFuzzer (SECONDS=60)'
	@echo 'make build    build only: $(BUILD)/weft, libweft.so, libweft.a'
	@echo 'make asan     the tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make tsan     the tests under ThreadSanitizer'
	@echo 'make matrix   the tests of the plain build in bare roots of Debian 12 and 13 (needs root and debootstrap)'
	@echo 'make other    the quick ones of them on the Debian that this host does not run; a part of our CI'
	@echo 'make compare  weft against bare libfabric, UCX, MPI, iperf3, memcpy (ARGS=--quick, --json, "--svg FILE")'
	@echo 'make links    how much of 32 shaped links over real TCP weft uses (needs root)'
	@echo 'make torture  random operations and faults for a minute, judged by an oracle (SEED=, MINUTES=)'
	@echo 'make install  install under PREFIX (default: the last one given, /usr/local at first), DESTDIR respected'
	@echo 'make uninstall  remove what make install put there; PREFIX and DESTDIR as for it'

setup:
	@scripts/setup

# What only the tests need besides, where it can be had.
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

# 77: no clang with libFuzzer here, which it has said.
fuzz: setup-tests build
	@BUILD=$(BUILD) scripts/fuzz $(or $(SECONDS),60) || test $$? = 77

asan: setup
	@scripts/run-tests build-asan address,undefined

tsan: setup
	@scripts/run-tests build-tsan thread

matrix:
	@scripts/matrix $(ARGS)

# 77: no root, no debootstrap or no network here, which it has said.
other:
	@scripts/matrix --fast --other $(ARGS) || test $$? = 77

# Random operations and faults for a minute, by a seed of its own: SEED=7 MINUTES=10 make torture
torture: build
	@$(BUILD)/tests/torture --seed $(or $(SEED),$$(date +%s)) --minutes $(or $(MINUTES),1) $(ARGS)

install: build
	@meson install -C $(BUILD) --no-rebuild

uninstall:
	@scripts/uninstall $(BUILD) $(abspath $(PREFIX))

format:
	@clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf build build-asan build-tsan build-matrix
