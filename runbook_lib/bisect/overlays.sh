# Puts the old version of a component into this image, verifies it, and ends with status 86 where that fails.
invalid() { echo "runbook-invalid: $*"; exit 86; }
restore() { # folder of all overlays, folder of this one, requirement, variables of the build
    local draft
    overlay=$1/$2
    if [ ! -e "$overlay" ]; then
        mkdir -p "$1" && draft=$(mktemp -d "$1/draft.XXXXXX") || invalid "${2%-*}: $1 cannot be written"
        # The image's own constraints pin the new version, and a build must see the image's PyTorch.
        env -u PIP_CONSTRAINT "${@:4}" python3 -m pip install --quiet --no-deps --no-build-isolation --target "$draft" "$3" \
            || invalid "${2%-*}: pip could not install $3"
        # Another run may have been faster: then its folder is used.
        mv -T "$draft" "$overlay" 2>/dev/null || rm -rf "$draft"
    fi
    export PYTHONPATH=$overlay${PYTHONPATH:+:$PYTHONPATH}
    local folder
    while IFS= read -r folder; do
        export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    done < <(find "$overlay" -path '*/lib/*' -name '*.so*' -printf '%h\n' | sort -u)
}
report() { # name, program, first numbers of the old version
    local version
    version=$(python3 -c "$2" "$overlay") || invalid "$1: its version could not be read"
    echo "runbook-overlay: $1 $version"
    [[ -z $3 || $version. == "$3".* ]] || invalid "$1 reports $version in the container, not $3"
}
