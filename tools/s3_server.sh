#!/usr/bin/env bash
# A real S3 server on loopback for tests: Ceph's radosgw with one monitor and one OSD in memory. All it has lies in DIR.
# It shows what servers do; it is slow, and no measure of anything. `tools/setup.sh servers` installs it.
#
#   eval "$(tools/s3_server.sh start DIR)"    sets AWS_*; on a running one it only prints them again
#   tools/s3_server.sh status DIR             exit status 0: answers, 3: not running, 1: broken
#   tools/s3_server.sh stop DIR               DIR/keep, the keys and the log stay; delete DIR at will
#
# start takes: --size MIB     beyond so many stored MiB a write is refused with QuotaExceeded (2048); takes twice the memory
#              --requests N   any more at once are answered with 503 SlowDown (1024)
#              --tls          https, by a certificate of its own for 127.0.0.1, localhost and *.s3.localhost
# Each start is an empty server. BUCKET.s3.localhost:PORT is a bucket, too. Many may run, each in its DIR: a test freezes
# or kills one by the first word of DIR/run/rgw.
set -euo pipefail
umask 077
unset CEPH_ARGS CEPH_CONF

say() { printf 's3_server: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }
usage() { sed -n '5,11s/^#  *//p' "$0" >&2; exit 2; }

verb=${1-} dir=${2-} size=2048 requests=1024 tls=
case $verb in start | stop | status) ;; *) usage ;; esac
[[ -n $dir && $dir != -* ]] || usage
shift 2
while [ $# -gt 0 ]; do
  case $1 in
    --size) size=${2-}; shift ;;
    --requests) requests=${2-}; shift ;;
    --tls) tls=1 ;;
    *) usage ;;
  esac
  shift || usage
done
[[ $size =~ ^[1-9][0-9]{0,5}$ && $requests =~ ^[1-9][0-9]{0,5}$ ]] || usage

# When a process began: a number that has come again is another one. Nothing of one that has ended, but was not waited for.
began() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  stat=${stat##*) }
  [[ $stat != Z* ]] || return 1
  cut -d' ' -f20 <<<"$stat"
}
# The pid of daemon $1, when it is the very one that was started here.
running() {
  local pid when
  { read -r pid when <"$dir/run/$1"; } 2>/dev/null || return 1
  [ -n "$when" ] && [ "$(began "$pid")" = "$when" ] && echo "$pid"
}
ended() {  # waits ten seconds for daemon $1
  for _ in {1..100}; do running "$1" >/dev/null || return 0; sleep 0.1; done
  return 1
}
end_all() {
  local name pid
  for name in rgw osd mon; do
    if pid=$(running $name); then
      kill "$pid" && kill -CONT "$pid" || true
      ended $name || { kill -9 "$pid" || true; ended $name || fail "cannot end $name, pid $pid"; }
    fi
    rm -f "$dir/run/$name"
  done
}
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
free_port() {
  local port
  for _ in {1..50}; do
    port=$((20000 + RANDOM % 12000))
    listens $port || { echo $port; return; }
  done
  fail "no port is free"
}
# Whether the gateway speaks HTTP on $1; with a word more, HTTPS.
speaks() {
  local hello='GET / HTTP/1.0\r\n\r\n' line
  if [ -n "${2-}" ]; then
    line=$(printf '%b' "$hello" | timeout 5 openssl s_client -quiet -connect "127.0.0.1:$1" 2>/dev/null | head -1) || true
  else
    line=$(timeout 5 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1"; printf "%b" "$2" >&3; head -1 <&3' - "$1" "$hello" 2>/dev/null) || true
  fi
  [[ $line == HTTP/1.*' 200 '* ]]
}

# Only a folder that was made here is ever written to or cleared.
if [ ! -e "$dir/keep" ]; then
  [ "$verb" = start ] || { say "not running"; [ "$verb" = stop ] && exit 0; exit 3; }
  [ ! -e "$dir" ] || { [ -d "$dir" ] && [ -z "$(ls -A "$dir")" ]; } || fail "$dir is neither new nor empty nor a server's"
  mkdir -p "$dir"
  : >"$dir/keep"
fi
dir=$(cd "$dir" && pwd -P)
[[ $dir != *[[:space:],\;#]* ]] || fail "Ceph takes no spaces, commas, semicolons or hashes in the name of a folder"
exec 9>>"$dir/keep"
flock -w 120 9 || fail "another start or stop of $dir is under way"
answers() { read -r port secure <"$dir/port" && speaks "$port" "$secure"; }
all_run() { running mon >/dev/null && running osd >/dev/null && running rgw >/dev/null; }

case $verb in
  stop) end_all; exit 0 ;;
  status)
    all_run || { running mon >/dev/null || running osd >/dev/null || running rgw >/dev/null || exit 3; exit 1; }
    answers || exit 1
    say "answers on port $port"
    exit 0 ;;
esac
if all_run; then
  answers || fail "runs but does not answer; stop it, and look into $dir/log"
  cat "$dir/env"
  exit 0
fi
end_all

for program in ceph-mon ceph-osd radosgw openssl; do
  command -v $program >/dev/null || fail "$program is not there: tools/setup.sh servers"
done
rm -rf "$dir"/{mon,osd,run,log}
mkdir "$dir"/{mon,osd,run,log}
hex() { head -c "$1" /dev/urandom | od -An -vtx1 | tr -d ' \n'; }
[ -s "$dir/keys" ] || echo "$(hex 10 | tr a-f A-F) $(hex 20)" >"$dir/keys"
read -r access secret <"$dir/keys"
id=$(cat /proc/sys/kernel/random/uuid)
mon_port=$(free_port)
while port=$(free_port); [ "$port" = "$mon_port" ]; do :; done
scheme=http frontend="endpoint=127.0.0.1:$port"
if [ -n "$tls" ]; then
  scheme=https frontend="ssl_endpoint=127.0.0.1:$port ssl_certificate=$dir/tls.pem ssl_private_key=$dir/tls.key"
  [ -s "$dir/tls.pem" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
    -subj /CN=localhost -addext 'subjectAltName=DNS:localhost,DNS:s3.localhost,DNS:*.s3.localhost,IP:127.0.0.1' \
    -keyout "$dir/tls.key" -out "$dir/tls.pem" 2>/dev/null || fail "openssl makes no certificate"
fi
echo "$port $tls" >"$dir/port"

# No passwords between the three, few threads, short waits, and no more placement groups and shards than one disk needs.
cat >"$dir/ceph.conf" <<CONF
[global]
fsid = $id
mon_host = [v2:127.0.0.1:$mon_port]
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr1 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_mon_client_mode = crc
keyring = /dev/null
run_dir = $dir/run
admin_socket =
crash_dir = $dir/log
log_file = $dir/log/\$type.log
mon_cluster_log_file = $dir/log/cluster.log
ms_async_op_threads = 2
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
$(printf 'debug_%s = 0/0\n' mon paxos osd rgw ms monc auth rocksdb mgrc objecter)
[mon]
mon_data = $dir/mon
mon_allow_pool_size_one = true
mon_data_avail_crit = 0
paxos_propose_interval = 0.02
paxos_min_wait = 0.01
[osd]
osd_data = $dir/osd
osd_objectstore = memstore
memstore_device_bytes = $((2 * size + 1024))M
osd_memory_target = 1G
osd_op_num_shards = 2
osd_op_num_threads_per_shard = 1
[client]
rgw_data = $dir/run
rgw_frontends = beast $frontend
rgw_dns_name = s3.localhost
rgw_enable_apis = s3, admin
rgw_thread_pool_size = 32
rgw_max_concurrent_requests = $requests
rgw_rados_pool_pg_num_min = 4
rgw_override_bucket_index_max_shards = 1
rgw_dynamic_resharding = false
rgw_run_sync_thread = false
rgw_user_default_quota_max_size = $((size << 20))
rgw_bucket_quota_ttl = 86400
rgw_num_control_oids = 1
rgw_data_log_num_shards = 1
rgw_md_log_max_shards = 1
rgw_objexp_hints_num_shards = 1
rgw_lc_max_objs = 1
rgw_reshard_num_logs = 1
rgw_gc_max_objs = 1
rgw_gc_obj_min_wait = 20
rgw_gc_processor_period = 10
rgw_gc_processor_max_time = 10
CONF

# A start that fails, or is interrupted, leaves nothing running.
trap 'status=$?; trap - EXIT; [ $status -eq 0 ] || end_all; exit $status' EXIT
trap 'exit 130' INT TERM
export TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=$((32 << 20)) TCMALLOC_RELEASE_RATE=10  # memory of deleted objects comes back
broken() { tail -qn 8 "$dir/log/$1".{err,log} >&2 2>/dev/null || true; fail "$2"; }
step() {  # step NAME COMMAND...: once, and to its end
  local name=$1
  shift
  timeout 120 "$@" >>"$dir/log/$name.err" 2>&1 9>&- || broken "$name" "this failed: $1 ${*:4:4}"
}
launch() {  # launch NAME COMMAND...: in a session of its own, so that Ctrl-C at the tests is not for it
  local name=$1 pid
  shift
  setsid "$@" >>"$dir/log/$name.err" 2>&1 </dev/null 9>&- &
  pid=$!
  echo "$pid $(began $pid)" >"$dir/run/$name"
}
await() {  # await NAME TEST...: until it holds, while that daemon lives
  local name=$1 until=$((SECONDS + 120))
  shift
  until "$@"; do
    running "$name" >/dev/null || broken "$name" "$name has ended"
    [ $SECONDS -lt $until ] || broken "$name" "$name does not answer"
    sleep 0.1
  done
}
conf=(-c "$dir/ceph.conf")
step mon monmaptool --create --clobber --fsid "$id" --addv a "[v2:127.0.0.1:$mon_port]" "$dir/monmap"
step mon ceph-mon "${conf[@]}" --mkfs -i a --monmap "$dir/monmap"
launch mon ceph-mon "${conf[@]}" -f -i a
await mon listens "$mon_port"
step mon ceph "${conf[@]}" --connect-timeout 60 osd new "$id"  # there is one OSD: it may have the cluster's name
step osd ceph-osd "${conf[@]}" --mkfs -i 0 --osd-uuid "$id"
launch osd ceph-osd "${conf[@]}" -f -i 0
step admin radosgw-admin "${conf[@]}" user create --uid tests --display-name tests --access-key "$access" --secret-key "$secret"
launch rgw radosgw "${conf[@]}" -f -n client.rgw --rados-osd-op-timeout 30
await rgw speaks "$port" "$tls"
cat >"$dir/env" <<ENV
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL_S3 AWS_CA_BUNDLE
export AWS_ACCESS_KEY_ID=$access AWS_SECRET_ACCESS_KEY=$secret AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1
export AWS_ENDPOINT_URL=$scheme://127.0.0.1:$port AWS_EC2_METADATA_DISABLED=true${tls:+ AWS_CA_BUNDLE=$dir/tls.pem}
ENV
cat "$dir/env"
