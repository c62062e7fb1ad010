# The commands of the house; "make help" lists them. Meson does the building, in build/.
SEED ?= 1
SEEDS ?= 10000
FUZZ_SECONDS ?= 600
ROUNDS ?= 1000
PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build

# The packages of tools/packages live here; a python3 or meson of the user's own that comes earlier may lack modules.
export PATH := /usr/bin:/bin:$(PATH)

all: build ## build what users get; ./heddle is then the command
build: build/build.ninja
	@ninja -C build
	@if test -x build/heddle; then ln -sfn build/heddle heddle; fi

# As make install has it, which then finds everything built.
build/build.ninja: | build-deps
	@meson setup build -Dtests=false -Dprefix=$(PREFIX) -Dlibdir=lib

everything: deps build/build.ninja ## build the tests and benchmarks, too
	@meson configure build -Dtests=true >/dev/null 2>&1 || meson setup --reconfigure build -Dtests=true
	@ninja -C build
	@ln -sfn build/heddle heddle

build-deps:
	@tools/deps --build

deps: ## install the packages that are missing
	@tools/deps

run: build ## two processes beside what the machine can do, then two unmodified programs
	@tools/demo

test: deps ## everything: all tests, sanitizers, a short fuzz run, tidy
	@tools/test

sim: everything ## simulated networks from SEEDS=10000 seeds, or the one of SEED=n again
	@$(if $(filter file undefined default,$(origin SEED)),build/tests/sim-worlds --quiet --seeds $(SEEDS),HEDDLE_SEED=$(SEED) build/tests/sim-worlds)

fuzz: deps ## fuzz for FUZZ_SECONDS=n a harness
	@tools/test --only fuzz --fuzz-seconds $(FUZZ_SECONDS)

interop: everything ## Linux's rdma_rxe and siw at the other end of the wire, and programs over UDP and TCP; builds a kernel the first time
	@tools/interop build

soak: everything ## kill -9 at random moments, ROUNDS=1000 times from SEED=n
	@tools/soak build $(ROUNDS) $(SEED)

bench: everything ## the benchmarks, with their floors beside them
	@tools/bench

tidy: everything ## the rules that the compiler cannot check
	@tools/tidy

fmt: deps ## format every C file
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs -r clang-format -i

install: | build-deps ## install into PREFIX= (below DESTDIR=)
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD) -Dtests=false
	@meson configure $(BUILD) -Dprefix=$(PREFIX) -Dlibdir=lib
	@ninja -C $(BUILD) installed
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild
	@if test -z "$(DESTDIR)"; then /sbin/ldconfig 2>/dev/null || true; fi

uninstall: ## remove what make install put there from this build
	@ninja -C $(BUILD) uninstall

clean: ## remove what was built
	@rm -rf build heddle

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 20

.PHONY: all build everything build-deps deps run test sim fuzz interop soak bench tidy fmt install uninstall clean help
