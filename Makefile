# Short names for what is done every day. The work is in tools/ and CMakeLists.txt;
# each target first installs what is missing (tools/setup), which does nothing
# and needs no network when all is there.
#
# The compiler is gcc, or what CC says: make CC=clang test

.PHONY: build run test test-all test-long fuzz bench lint format stages stubs install deb wheel clean help
.DEFAULT_GOAL := build

build:
	@tools/setup build
	@tools/build release

run:
	@tools/setup build
	@tools/build release glyphs brim
	@build/release/examples/glyphs
	@echo; echo "what the network saw first:"
	@build/release/brim show "folder build/glyphs/2000/train | shuffle seed=7 | decode \
		| random_resized_crop 32 scale=0.6,1 seed=7 | normalize mean=0.4 std=0.3 | batch 64" \
		-n 64 -o build/glyphs/sheet.png --index-dir build/glyphs/2000

test:
	@tools/setup build python test deb
	@tools/test lint release:quick fuzz

# What make test leaves out.
test-all:
	@tools/setup build python test deb
	@tools/test release:full asan-ubsan tsan

test-long:
	@tools/setup build python test deb
	@tools/test release:long

fuzz: HOURS ?= 1
fuzz:
	@tools/setup build python test
	@tools/fuzz $$(($(HOURS) * 3600))

bench:
	@tools/setup build python
	@tools/build release benches brim python
	@set -e; for name in $(basename $(notdir $(wildcard bench/*.c))); do \
		echo "== $$name"; build/release/bench/$$name; done
	@echo "== parse"; tools/venv full; tools/python bench/parse.py --cli build/release/brim
	@set -e; for name in overhead small images functions caches hold; do \
		echo "== python/$$name"; \
		PYTHONPATH=build/release/python tools/python bench/python/$$name.py; done

lint:
	@tools/setup build python test lint
	@tools/venv full || true
	@tools/lint

format:
	@tools/setup lint
	@tools/lint --format

stages:
	@tools/setup build
	@tools/build release brim
	@build/release/brim stages --markdown >docs/stages.md

# By way of another file: the package is imported meanwhile.
stubs:
	@tools/setup build python
	@tools/build release python
	@PYTHONPATH=build/release/python tools/python python/tools/stubs.py >build/stubs.pyi
	@mv build/stubs.pyi python/brim/_stages.pyi

# DESTDIR stands before PREFIX in the file system and nowhere in the files.
install: PREFIX ?= /usr/local
install: build
	@DESTDIR="$(DESTDIR)" cmake --install build/release --prefix "$(PREFIX)"
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" -eq 0 ]; then ldconfig; fi

deb:
	@tools/setup build deb
	@tools/build release
	@cd build/release && cpack

wheel:
	@tools/setup build python
	@tools/wheel

clean:
	rm -rf build

help:
	@echo "make          build the library, the command line, the examples, the benchmarks and, where"
	@echo "              Python's headers are, the Python package"
	@echo "make run      draw a folder of images, show the plan, train on it inside 16 MiB, and"
	@echo "              draw a sheet of what the network saw"
	@echo "make test     check format and rules, build, run the quick tests, and fuzz for about a minute:"
	@echo "              some minutes in all"
	@echo "make test-all the tests that make test leaves out: the full ones, which install the"
	@echo "              frameworks that brim is compared with, and all under the sanitizers"
	@echo "make test-long  the long forms of some tests"
	@echo "make fuzz     fuzz for an hour; HOURS=8 for longer"
	@echo "make bench    build and run the benchmarks"
	@echo "make lint     check format, rules, types and clang-tidy; tools/lint --fast does the first two"
	@echo "make format   format all C files"
	@echo "make stages   write docs/stages.md from the table of stages"
	@echo "make stubs    write python/brim/_stages.pyi from the table of stages"
	@echo "make install  install below PREFIX (/usr/local), which DESTDIR may move"
	@echo "make deb      build a Debian package in build/release"
	@echo "make wheel    build the Python package in build/wheel, with the libraries that it needs"
	@echo "make clean    remove build/"
	@echo "make help     this text"
