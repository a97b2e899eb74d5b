# Short names for what is done every day. The work is in tools/ and CMakeLists.txt;
# each target first installs what is missing (tools/setup), which does nothing
# and needs no network when all is there.
#
# The compiler is gcc, or what CC says: make CC=clang test

.PHONY: build run test bench lint format clean help
.DEFAULT_GOAL := build

build:
	@tools/setup build
	@tools/build release

run:
	@tools/setup build
	@tools/build release glyphs
	@build/release/examples/glyphs

test:
	@tools/setup build test
	@tools/test

bench:
	@tools/setup build
	@tools/build release benches
	@set -e; for name in $(basename $(notdir $(wildcard bench/*.c))); do \
		echo "== $$name"; build/release/bench/$$name; done

lint:
	@tools/setup build test lint
	@tools/lint

format:
	@tools/setup lint
	@tools/lint --format

clean:
	rm -rf build

help:
	@echo "make          build the library, the command line, the examples and the benchmarks"
	@echo "make run      draw a data set, show the plan, train on it inside 16 MiB"
	@echo "make test     build and run every test: release, asan-ubsan, tsan"
	@echo "make bench    build and run the benchmarks"
	@echo "make lint     check format, clang-tidy and the rules between modules"
	@echo "make format   format all C files"
	@echo "make clean    remove build/"
	@echo "make help     this text"
