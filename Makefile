# Short names for what is done every day. The work is in tools/ and CMakeLists.txt;
# each target first installs what is missing (tools/setup), which does nothing
# and needs no network when all is there.
#
# The compiler is gcc, or what CC says: make CC=clang test

.PHONY: build run test fuzz bench lint format stages install deb clean help
.DEFAULT_GOAL := build

build:
	@tools/setup build
	@tools/build release

run:
	@tools/setup build
	@tools/build release glyphs
	@build/release/examples/glyphs

test:
	@tools/setup build test deb
	@tools/test

fuzz: HOURS ?= 1
fuzz:
	@tools/setup build test
	@tools/fuzz $$(($(HOURS) * 3600))

bench:
	@tools/setup build
	@tools/build release benches
	@set -e; for name in $(basename $(notdir $(wildcard bench/*.c))); do \
		echo "== $$name"; build/release/bench/$$name; done
	@echo "== parse"; tools/venv; tools/python bench/parse.py --cli build/release/brim

lint:
	@tools/setup build test lint
	@tools/lint

format:
	@tools/setup lint
	@tools/lint --format

stages:
	@tools/setup build
	@tools/build release brim
	@build/release/brim stages --markdown >docs/stages.md

# DESTDIR stands before PREFIX in the file system and nowhere in the files.
install: PREFIX ?= /usr/local
install: build
	@DESTDIR="$(DESTDIR)" cmake --install build/release --prefix "$(PREFIX)"
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" -eq 0 ]; then ldconfig; fi

deb:
	@tools/setup build deb
	@tools/build release
	@cd build/release && cpack

clean:
	rm -rf build

help:
	@echo "make          build the library, the command line, the examples and the benchmarks"
	@echo "make run      draw a data set, show the plan, train on it inside 16 MiB"
	@echo "make test     build and run every test: release, asan-ubsan, tsan, a minute of fuzzing"
	@echo "make fuzz     fuzz for an hour; HOURS=8 for longer"
	@echo "make bench    build and run the benchmarks"
	@echo "make lint     check format, clang-tidy and the rules between modules"
	@echo "make format   format all C files"
	@echo "make stages   write docs/stages.md anew, from the table of stages"
	@echo "make install  install below PREFIX (/usr/local), which DESTDIR may move"
	@echo "make deb      build a Debian package in build/release"
	@echo "make clean    remove build/"
	@echo "make help     this text"
