#!/bin/sh
# Installs NCCL into the image.  For practice it only records the version.
set -eu

NCCL_VER="2.29.2-1+cuda13.1"

for argument in "$@"; do
    case $argument in
        --NCCL_VER=?*) NCCL_VER="${argument#*=}" ;;
    esac
done

echo "libnccl2=${NCCL_VER} libnccl-dev=${NCCL_VER}" > /opt/nccl-version.txt
