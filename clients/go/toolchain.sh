# Finds Go, or installs it into target/clients/go; sourced by `test` and `bench`.

root=$(cd ../.. && pwd)
. "$root/scripts/needs.sh"
target=$root/target/clients/go
mkdir -p "$target"

# The version that is installed if there is none.
go_version=go1.24.11

has_go() { # has_go PROGRAM: whether it is Go 1.22 or newer
    local version
    version=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
    [[ $version =~ ^go1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 22 ]
}

if ! has_go go; then
    if ! has_go "$target/toolchain/bin/go"; then
        # Debian's Go may be too old, but can fetch a newer one: Go publishes itself as a module.
        need go golang-go
        say "fetching $go_version"
        toolchain=golang.org/toolchain@v0.0.1-$go_version.linux-$(go env GOARCH)
        found=$(cd "$target" && GOFLAGS=-modcacherw GOMODCACHE="$target/mod" go mod download -json "$toolchain" |
            sed -n 's/^[[:space:]]*"Dir": "\(.*\)",\{0,1\}$/\1/p')
        [ -n "$found" ] || missing "Go 1.22" PATH
        rm -rf "$target/toolchain"
        cp -r "$found" "$target/toolchain"
        # Modules have no executable files.
        chmod -R u+w "$target/toolchain"
        chmod +x "$target"/toolchain/bin/* "$target"/toolchain/pkg/tool/*/*
    fi
    export PATH=$target/toolchain/bin:$PATH
    unset GOROOT
fi
export GOTOOLCHAIN=local GOFLAGS=-modcacherw GOMODCACHE=$target/mod
# The race detector is linked by a C compiler.
need cc gcc
