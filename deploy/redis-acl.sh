#!/bin/sh
# Prints the ACL rule of the one Redis user that nixlet's agents need, for `ACL SETUSER` or an aclfile.
# The password is read from a file and printed as its SHA-256 only.
#   deploy/redis-acl.sh --password-file FILE [--user nixlet] [--cluster NAME]
#   redis-cli $(deploy/redis-acl.sh --password-file FILE --setuser)
# With --cluster the user reaches the keys of that cluster only. SCAN shows the names of other keys
# of the same database, not what is in them: give nixlet a database or server of its own if that matters.
set -eu
user=nixlet cluster='' file='' form=user
while [ $# -gt 0 ]; do
    case $1 in
    --user) user=$2; shift 2 ;;
    --cluster) cluster=$2; shift 2 ;;
    --password-file) file=$2; shift 2 ;;
    --setuser) form=setuser; shift ;;
    *) echo "redis-acl.sh: unknown word '$1'; see the head of this file" >&2; exit 2 ;;
    esac
done
[ -n "$file" ] || { echo "redis-acl.sh: --password-file FILE is missing" >&2; exit 2; }
[ -r "$file" ] || { echo "redis-acl.sh: cannot read '$file'" >&2; exit 1; }
hash=$(printf %s "$(cat "$file")" | sha256sum | cut -d' ' -f1)
keys='~nixlet:*'
[ -z "$cluster" ] || keys="~nixlet:{$cluster}:*"
[ "$form" = user ] && head="user $user" || head="ACL SETUSER $user"
echo "$head reset on #$hash $keys resetchannels -@all +auth +select +role +eval +time +get +set +del" \
    "+hget +hmget +hgetall +hset +hdel +hlen +pexpire +xadd +xread +scan"
