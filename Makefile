# sluice: `make up` for a first look, `make test` before every commit. `make help` lists the rest.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: lab help build build-pure lib install-lib uninstall-lib python mpiio install-mpiio deps up down test test-mpi test-system test-rest test-lab check soak soak-loops soak-rest model bench figures \
        fmt vet lint race fuzz clean man install uninstall

GO          ?= go
PYTHON      ?= /usr/bin/python3
VERSION     := $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)
LDFLAGS     := -X main.version=$(VERSION)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0

CLUSTER     ?= .sluice
MOUNT       ?= mnt
FUZZTIME    ?= 1m

# Where `make install` puts things; DESTDIR is for who makes packages.
DESTDIR     ?=
PREFIX      ?= /usr/local
BINDIR      := $(DESTDIR)$(PREFIX)/bin
MANDIR      := $(DESTDIR)$(PREFIX)/share/man/man1
BASHDIR     := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSHDIR      := $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISHDIR     := $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
SBINDIR     := $(DESTDIR)/sbin
HELPERS     := mount.sluice mount.fuse.sluice
INCLUDEDIR  := $(DESTDIR)$(PREFIX)/include
LIBDIR      := $(DESTDIR)$(PREFIX)/lib
MAN3DIR     := $(DESTDIR)$(PREFIX)/share/man/man3

BENCHFLAGS  ?=

# The same flags for everything, so that builds and tests share what is compiled.
export GOFLAGS := $(GOFLAGS) -trimpath

# Where goroutines share most state, and where they share any. What is compiled for the race detector
# is compiled for nothing else, and takes minutes: `make test` does the first, `make check` all.
RACE_QUICK := ./fabric/shm ./mover ./msg ./unifier/... ./client/internal/...
RACE := $(RACE_QUICK) ./fabric ./fabric/sim ./fabric/tcp ./fabric/progress ./fabric/provider \
        ./fabric/hook/meter ./mem/... ./msg/... ./peer ./relay ./capi ./client/... ./iod/... ./exio/... ./transfer ./stripe/... \
        ./kv/... ./meta/... ./mount/... ./nbd/... ./bench/... ./internal/supervise ./internal/gate ./internal/wait

# `make check` vets. Test binaries without what a debugger reads are linked in half the time; a test
# that fails prints its stack all the same.
TEST := $(GO) test -vet=off -ldflags=-w

# Tests of tests, which build packages with mistakes in them: `make check` runs them.
MUTANTS := MutantsAreFound

# Packages that start processes and mount: they wait a lot, so the others run beside them.
SYSTEM    := ./systest ./cmd/sluice ./mount
SYSTEM_RE := systest|cmd/sluice|mount

# Virtual machines with a stock kernel. Two at a time keep both cores busy, so their packages run one
# after the other. Where all that they need can be installed, a test that is skipped is a failure.
# The virtual machines' own tests are in `make check` and `make lab`.
LAB      := ./vmtest/attach/... ./vmtest/cluster ./vmtest/ocfs2 ./vmtest/transport ./vmtest/agent ./vmtest/frame \
            ./fabric/verbs/...
HARNESS  := ./vmtest ./vmtest/lab
LAB_RE   := vmtest|vmtest/.*|fabric/verbs|fabric/verbs/.*
LAB_MUST := $(shell [ "$$(id -u)" = 0 ] && [ "$$(uname -m)" = x86_64 ] && \
              command -v apt-get >/dev/null && echo must)

# Fuzzing that is guided by coverage compiles all that a package imports anew. `make check` fuzzes a
# little and without a guide; `make test` runs what fuzzing has found, and the seeds.
FUZZ_GUIDE ?= -fuzz=.

# The commands that tests call, and the Debian packages that hold them.
TOOLS    := fio qemu-img qemu-io qemu-nbd nbdinfo nbdcopy nbdfuse nbdkit nbd-server nbd-client fusermount3 sqlite3 git tar cc \
            qemu-system-x86_64 busybox modprobe ip rdma xz pkill ibv_devinfo ib_send_lat \
            mkfs.ext4 mkfs.xfs mkfs.ocfs2 losetup mount man setfacl setfattr setcap setpriv unshare \
            lsattr rsync stdbuf initdb curl
PACKAGES := fio qemu-utils libnbd-bin nbdkit nbd-server nbd-client fuse3 sqlite3 git tar gcc libc6-dev \
            qemu-system-x86 busybox-static kmod iproute2 xz-utils procps ibverbs-utils \
            ibverbs-providers perftest e2fsprogs xfsprogs ocfs2-tools util-linux mount man-db acl attr \
            libcap2-bin rsync coreutils postgresql curl python3 python3-numpy python3-pytest \
            python3-fsspec python3-pandas python3-dask mypy
MPI_TOOLS    := mpicc.mpich mpiexec.mpich mpicc.openmpi mpiexec.openmpi h5pcc.mpich h5pcc.openmpi
MPI_PACKAGES := mpich libmpich-dev openmpi-bin libopenmpi-dev libhdf5-mpich-dev libhdf5-openmpi-dev
PYMODULES := numpy pytest fsspec pandas dask mypy

SUMMARY := bin/summary

# $(call step,NAME,COMMAND) runs a step, and notes its time for the summary.
define step
	@echo "== $(1)"; mkdir -p bin; begin=$$(date +%s); \
	( [ -z "$(NICE)" ] || renice -n $(NICE) -p $$BASHPID > /dev/null || true; $(2) ) || { echo "FAILED: $(1)"; exit 1; }; \
	printf '%5d s  %s\n' $$(( $$(date +%s) - begin )) "$(1)" >> $(SUMMARY)
endef

help: ## lists the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

build: ## builds bin/sluice
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/sluice ./cmd/sluice

build-pure: ## builds everything without cgo
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o bin/sluice-pure ./cmd/sluice

# The linker is told the name that programs look for; nobody needs the header that cgo writes.
lib: ## builds bin/lib/libsluice.so, for programs in C
	@mkdir -p bin/lib
	CGO_ENABLED=1 $(GO) build -buildmode=c-shared \
		-ldflags '$(LDFLAGS) -extldflags=-Wl,-soname,libsluice.so.1' -o bin/lib/libsluice.so.1 ./capi/libsluice
	@rm -f bin/lib/libsluice.so.h; ln -sf libsluice.so.1 bin/lib/libsluice.so
	@sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' capi/libsluice/libsluice.pc.in > bin/lib/libsluice.pc

install-lib: lib ## installs libsluice, sluice.h, its pkg-config file and its manual page below PREFIX
	@mkdir -p $(LIBDIR)/pkgconfig $(INCLUDEDIR) $(MAN3DIR)
	install -m 755 bin/lib/libsluice.so.1 $(LIBDIR)/libsluice.so.1
	ln -sf libsluice.so.1 $(LIBDIR)/libsluice.so
	install -m 644 capi/libsluice/sluice.h $(INCLUDEDIR)/sluice.h
	install -m 644 bin/lib/libsluice.pc $(LIBDIR)/pkgconfig/libsluice.pc
	install -m 644 capi/libsluice/libsluice.3 $(MAN3DIR)/libsluice.3

uninstall-lib: ## removes what `make install-lib` has installed
	rm -f $(LIBDIR)/libsluice.so.1 $(LIBDIR)/libsluice.so $(INCLUDEDIR)/sluice.h \
		$(LIBDIR)/pkgconfig/libsluice.pc $(MAN3DIR)/libsluice.3

python: lib ## builds the wheel of the Python package, with libsluice in it, into bin/python
	@rm -rf bin/python; mkdir -p bin/python
	$(PYTHON) python/wheel.py '$(VERSION)' bin/lib/libsluice.so.1 bin/python

# One source, and a library for each MPI that is installed: their handles are different.
mpiio: ## builds bin/lib/libsluice-mpiio-mpich.so and -ompi.so, for programs that use MPI-IO
	@mkdir -p bin/lib; built=; for m in mpich:mpich ompi:openmpi; do \
		command -v mpicc.$${m#*:} >/dev/null || continue; built=1; \
		mpicc.$${m#*:} -std=gnu11 -shared -fPIC -O2 -Wall -Wextra -Icapi/libsluice \
			-Wl,-soname,libsluice-mpiio-$${m%:*}.so -o bin/lib/libsluice-mpiio-$${m%:*}.so \
			mpiio/src/*.c -ldl -lpthread; \
	done; [ -n "$$built" ] || { echo "Neither mpicc.mpich nor mpicc.openmpi is here."; exit 1; }

install-mpiio: mpiio install-lib ## installs them, and libsluice, below PREFIX
	install -m 755 bin/lib/libsluice-mpiio-*.so $(LIBDIR)/

man: build ## writes the manual pages into bin/man1
	@rm -rf bin/man1; bin/sluice man bin/man1

install: man ## installs binary, manual pages and completions below PREFIX (/usr/local), with DESTDIR before it
	@mkdir -p $(BINDIR) $(MANDIR) $(BASHDIR) $(ZSHDIR) $(FISHDIR)
	install -m 755 bin/sluice $(BINDIR)/sluice
	install -m 644 bin/man1/*.1 $(MANDIR)/
	bin/sluice completion bash > $(BASHDIR)/sluice
	bin/sluice completion zsh > $(ZSHDIR)/_sluice
	bin/sluice completion fish > $(FISHDIR)/sluice.fish
	@if mkdir -p $(SBINDIR) && [ -w $(SBINDIR) ]; then \
		for h in $(HELPERS); do ln -sfv $(PREFIX)/bin/sluice $(SBINDIR)/$$h; done; \
	else echo "mount -t sluice needs root to install it: docs/ops/fstab.md"; fi

uninstall: ## removes what `make install` has installed
	rm -f $(BINDIR)/sluice $(MANDIR)/sluice.1 $(MANDIR)/sluice-*.1 $(BASHDIR)/sluice $(ZSHDIR)/_sluice \
		$(FISHDIR)/sluice.fish $(addprefix $(SBINDIR)/,$(HELPERS))

deps: ## installs what the tests need, where it is missing
	@missing=; path="$$PATH:/usr/sbin:/sbin$$(printf ':%s' /usr/lib/postgresql/*/bin)"; \
	for tool in $(TOOLS); do \
		PATH="$$path" command -v $$tool >/dev/null || missing="$$missing $$tool"; \
	done; \
	for m in $(PYMODULES); do \
		/usr/bin/python3 -c "import $$m" 2>/dev/null || python3 -c "import $$m" 2>/dev/null || \
			missing="$$missing python3-$$m"; \
	done; \
	if [ -n "$$missing" ]; then \
		install="apt-get install -y -qq --no-install-recommends $(PACKAGES)"; \
		echo "missing:$$missing"; \
		if ! command -v apt-get >/dev/null; then \
			echo "There is no apt-get here. Install these by hand (Debian's names): $(PACKAGES)"; \
			exit 1; \
		fi; \
		if [ "$$(id -u)" != 0 ]; then \
			echo "Only root can install them. Run: sudo $$install"; exit 1; \
		fi; \
		export DEBIAN_FRONTEND=noninteractive; \
		$$install >/dev/null 2>&1 || { apt-get update -qq && $$install >/dev/null; }; \
	fi
	@$(GO) mod download
	@if [ -n "$(LAB_MUST)" ]; then \
		$(GO) run ./vmtest/lab --prepare || \
			{ apt-get update -qq && $(GO) run ./vmtest/lab --prepare; }; \
	fi

up: build ## starts a cluster, mounts it at ./mnt, makes a volume, writes and reads a striped file
	@mount=; \
	if [ -r /dev/fuse ] && [ -w /dev/fuse ]; then mount="--mount $(MOUNT)"; \
	else echo "No access to /dev/fuse: starting without a mount."; fi; \
	bin/sluice up -d --dir $(CLUSTER) $$mount
	@bin/sluice demo --dir $(CLUSTER)
	@echo; echo "Look with: bin/sluice status --dir $(CLUSTER)   Stop with: make down"

down: ## stops what `make up` started
	@bin/sluice down --dir $(CLUSTER)

# Three lanes share the cores: processes and guests wait a lot, for disks, pauses and each other, and
# what the others test fills that time. No limit of a test is a measure of speed, so that the lanes may
# slow each other down. That of the guests takes longest and goes first, the others fill what it leaves.
test: ## runs the tests, and installs what they need before; check, test-mpi and soak have the rest
	@mkdir -p bin; rm -f $(SUMMARY)
	$(call step,dependencies,$(MAKE) -s deps)
	$(call step,build,$(MAKE) -s build && $(GO) build ./...)
	@$(MAKE) -s -j3 --output-sync=recurse test-lab test-system test-rest
	@echo "== all passed"; cat $(SUMMARY)

test-system test-rest: NICE := 4

test-system:
	$(call step,tests with processes,$(TEST) -parallel 4 -timeout 60m $(SYSTEM))

test-rest:
	$(call step,format,$(MAKE) -s fmt)
	$(call step,lint,$(MAKE) -s lint)
	$(call step,tests,$(TEST) -skip '$(MUTANTS)' -timeout 60m $$($(GO) list ./... | grep -vE '/($(SYSTEM_RE)|$(LAB_RE)|internal/lint|mpiio)$$'))
	$(call step,tests under the race detector,$(MAKE) -s race RACE='$(RACE_QUICK)')

test-lab:
	$(call step,tests with virtual machines,SLUICE_VMTEST=$${SLUICE_VMTEST:-$(LAB_MUST)} \
		$(TEST) -p 1 -timeout 90m $(LAB))

lab: deps ## runs the tests that need virtual machines
	@$(MAKE) -s test-lab LAB='$(HARNESS) $(LAB)'

test-mpi: ## runs the tests of MPI-IO, and installs MPICH, Open MPI and HDF5 for them; three minutes
	@$(MAKE) -s deps TOOLS='$(TOOLS) $(MPI_TOOLS)' PACKAGES='$(PACKAGES) $(MPI_PACKAGES)'
	$(call step,MPI-IO,$(GO) test -timeout 4h $(MPIFLAGS) ./mpiio)

check: ## gofmt, vet, the build without cgo, staticcheck, lint, mistakes that tests have to find, fuzzing, race
	@mkdir -p bin; rm -f $(SUMMARY)
	$(call step,format and vet,$(MAKE) -s fmt vet && $(GO) vet -tags invariants ./...)
	$(call step,build without cgo,$(MAKE) -s build-pure)
	$(call step,staticcheck,$(GO) run $(STATICCHECK) ./...)
	$(call step,lint,$(MAKE) -s lint)
	$(call step,mistakes that tests have to find,$(TEST) -run '$(MUTANTS)' ./...)
	$(call step,virtual machines themselves,$(MAKE) -s test-lab LAB='$(HARNESS)')
	$(call step,fuzzing a little,$(MAKE) -s fuzz FUZZTIME=8000x FUZZ_GUIDE=)
	$(call step,tests under the race detector,$(MAKE) -s race)
	@echo "== all passed"; cat $(SUMMARY)

fmt: # every file that git knows or would take
	@bad=$$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l); \
	if [ -n "$$bad" ]; then echo "not formatted (gofmt -w):"; echo "$$bad"; exit 1; fi

vet:
	@$(GO) vet ./...

lint:
	@$(TEST) -count=1 ./internal/lint

race:
	@CGO_ENABLED=1 $(TEST) -race -short -tags invariants -timeout 20m $(RACE)

# Every FuzzXxx that there is; each package is compiled once. A fuzzer that ends with its own deadline
# and no failing input has only run into the end of its time, which the tool reports as a failure.
fuzz:
	@for dir in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		$(TEST) -c $(FUZZ_GUIDE) -o bin/fuzz.test $$dir; \
		for name in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$dir/*_test.go | cut -d' ' -f2); do \
			echo "$$name in $$dir"; \
			( cd $$dir; $(CURDIR)/bin/fuzz.test -test.run '^$$' -test.fuzz "^$$name\$$" \
				-test.fuzztime $(FUZZTIME) -test.fuzzcachedir $(CURDIR)/bin/fuzz.cache ) \
				> bin/fuzz.log 2>&1 || \
				{ grep -q 'context deadline exceeded' bin/fuzz.log && \
				  ! grep -qE 'Failing input|panic' bin/fuzz.log; } || \
				{ cat bin/fuzz.log; exit 1; }; \
		done; \
	done

# Random requests against the model of the I/O servers, several copies at once: on a machine that is
# busier than it has cores goroutines meet in orders that they never meet in else.
MODEL_MINUTES ?= 60
MODEL_COPIES  ?= 5
model: ## runs MODEL_COPIES (5) of the I/O servers' model at once for MODEL_MINUTES (60), with the race detector
	@rm -rf bin/model; mkdir -p bin/model
	CGO_ENABLED=1 $(GO) test -race -c -tags invariants -o bin/model/test ./iod/iodtest
	@end=$$(( $$(date +%s) + 60 * $(MODEL_MINUTES) )); pids=; \
	for copy in $$(seq $(MODEL_COPIES)); do \
		( cd iod/iodtest; runs=0; log=$(CURDIR)/bin/model/$$copy.log; \
		while [ $$(date +%s) -lt $$end ]; do \
			$(CURDIR)/bin/model/test -test.short -test.run TestRandomRequests -test.v > $$log 2>&1 || \
				{ echo "copy $$copy has failed: $$log"; exit 1; }; \
			runs=$$(( runs + 1 )); \
		done; echo "copy $$copy: $$runs runs, all well" ) & pids="$$pids $$!"; \
	done; \
	failed=0; for pid in $$pids; do wait $$pid || failed=1; done; exit $$failed

soak: deps build ## fuzzes each decoder for FUZZTIME (1m), runs the long loops and the model beside them; about two hours
	@rm -f $(SUMMARY)
	@$(MAKE) -s -j2 soak-loops soak-rest
	@echo "== all passed"; cat $(SUMMARY)

soak-loops:
	$(call step,long loops,SLUICE_SOAK=1 SLUICE_KILL_ROUNDS=300 SLUICE_HOSTILE=20000 SLUICE_IOD_REQUESTS=3000000 \
		LOGSTORE_SEEDS=50000 LOGSTORE_KILLS=200 LOGSTORE_POWER_CUTS=50 \
		$(GO) test -count=1 -timeout 4h -v -run 'Crash|Kill|Power|Soak|Iod|Random|Planted|Mutants|Pause|Stopped|Fills|Flipped|Fight|Fio|Swallowed|Hostile' \
		./systest ./iod/... ./stripe/... ./kv/... ./meta/...)

soak-rest:
	@MPIIO_SEEDS=2000 $(MAKE) -s test-mpi MPIFLAGS='-count=1 -v'
	$(call step,the speed between machines,SLUICE_SOAK=1 $(GO) test -p 1 -count=1 -timeout 60m ./vmtest/cluster ./vmtest/transport)
	$(call step,the kernel as a client,SLUICE_SOAK=1 $(GO) test -p 1 -count=1 -timeout 90m ./vmtest/attach ./vmtest/ocfs2)
	$(call step,the model of the I/O servers,$(MAKE) -s model)
	$(call step,fuzzing,$(MAKE) -s fuzz FUZZTIME=$(FUZZTIME))

bench: build ## measures against the ceilings of this machine
	@for b in net iod meta fs nbd; do bin/sluice bench $$b $(BENCHFLAGS); done

figures: build ## the same, kept in docs/figures
	@mkdir -p docs/figures
	@bin/sluice bench fabric --json --plot docs/figures/fabric.svg --markdown docs/figures/fabric.md \
		$(BENCHFLAGS) > docs/figures/fabric.json
	@for b in net fs; do bin/sluice bench $$b --json $(BENCHFLAGS) > docs/figures/$$b.json; done
	@bin/sluice bench nbd --json --figures docs/figures/nbd.md $(BENCHFLAGS) > docs/figures/nbd.json

clean: ## removes what was built; a cluster's data stays
	rm -rf bin
