# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What the scripts of this directory share. They run as root, with the repository at /vagrant.
set -eu
# shellcheck source=lab/topology.env
. /vagrant/lab/topology.env

# The administrator's directory on the control machine, with authorities and keys.
export DESK=/root/lab
# What workers fetch from the control machine: their bundles.
export SHARED=/srv/lab
export DEBIAN_FRONTEND=noninteractive

# step 'KIND: NAME' DIRECTORY [OLD=NEW...]: run the README's block of that name there, with other names.
step() {
    python3 /vagrant/tests/guide.py "$@"
}

# retry SECONDS COMMAND...: until it succeeds, or fail when the time is over. The output of the last try is shown.
retry() {
    left=$1
    shift
    until "$@" >/tmp/retry.log 2>&1; do
        left=$((left - 1))
        if [ "$left" -le 0 ]; then
            echo "still failing: $*" >&2
            cat /tmp/retry.log >&2
            exit 1
        fi
        sleep 1
    done
    cat /tmp/retry.log
}

# of TENANT ARGUMENT...: kubectl as that tenant's administrator, on the control machine.
of() {
    tenant_name=$1
    shift
    kubectl --kubeconfig="$DESK/$tenant_name.kubeconfig" "$@"
}
