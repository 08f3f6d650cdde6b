#!/bin/bash
# One run of a search: its folder, its limit in minutes.  Whoever starts it a second time changes nothing: the claim
# stays for ever.
cd "$1" || exit 1
umask 077
exec 9>lock
flock --nonblock 9 || exit 0
mkdir claim 2>/dev/null || exit 0
timeout --kill-after=30s "$2m" bash command.sh >node-0.out.log 2>node-0.err.log 9>&- </dev/null
echo $? >ended.tmp
((SECONDS < $2 * 60)) || : >timeout
mv ended.tmp ended
