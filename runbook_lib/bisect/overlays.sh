# Puts old versions of components into this image, verifies them, and ends with status 86 where that fails.
overlays=@FOLDER@
invalid() { echo "runbook-invalid: $*"; exit 86; }
restore() { # folder, requirement, variables of the build
    local prefix=$overlays/$1 draft
    if [ ! -e "$prefix" ]; then
        mkdir -p "$overlays" && draft=$(mktemp -d "$overlays/draft.XXXXXX") || invalid "${1%-*}: $overlays cannot be written"
        # The image's own constraints pin the new version, and a build must see the image's PyTorch.
        env -u PIP_CONSTRAINT "${@:3}" python3 -m pip install --quiet --no-deps --no-build-isolation --target "$draft" "$2" \
            || invalid "${1%-*}: pip could not install $2"
        # Another run may have been faster: then its folder is used.
        mv -T "$draft" "$prefix" 2>/dev/null || rm -rf "$draft"
    fi
    export PYTHONPATH=$prefix${PYTHONPATH:+:$PYTHONPATH}
    local folder
    while IFS= read -r folder; do
        export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    done < <(find "$prefix" -path '*/lib/*' -name '*.so*' -printf '%h\n' | sort -u)
}
report() { # name, program, first numbers of the old version
    local version
    version=$(python3 -c "$2") || invalid "$1: its version could not be read"
    echo "runbook-overlay: $1 $version"
    [[ -z $3 || $version. == "$3".* ]] || invalid "$1 reports $version in the container, not $3"
}
