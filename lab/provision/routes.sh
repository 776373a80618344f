#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# routes.sh NAME, on any machine of Vagrant's and at each of its starts: the way to the pods of the other workers.
# shellcheck source=lab/provision/common.sh
. /vagrant/lab/provision/common.sh
for worker in $WORKERS; do
    IFS=, read -r name address pods <<END
$worker
END
    [ "$name" = "$1" ] || ip route replace "$pods" via "$address"
done
