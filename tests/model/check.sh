#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check.sh FOLDER GROUP: one group of checks of switch.pml with spin; exit 1 and a line for what differs.
#   holds    the protocol: no error in any reachable state
#   broken   each deliberately broken variant: an error must be found
#   reached  states that must be reachable, so that the first group is not vacuous
#   edges    the record transitions of the model are exactly those of transitions.txt
#   long     two migrations one after another (minutes, gigabytes; not part of ctest's default)
here=$(cd "$(dirname "$0")" && pwd)
out=$1
group=$2
failed=0

# run NAME WANT [-D...]: WANT is ok or error.
run() {
  local name=$1 want=$2 flags="-DSAFETY -DNOREDUCE -DBFS" options="-E" log errors
  shift 2
  local d=$out/$name
  rm -rf "$d"; mkdir -p "$d"; cd "$d" || exit 1
  { [ -n "$REACH_STATE" ] && echo "#define REACH $REACH_STATE"; cat "${MODEL:-$here/switch.pml}"; } > switch.pml
  if [[ "$*" == *-DLIVE* ]]; then flags="-DNOREDUCE"; options="-a"; fi
  if ! spin "$@" -a switch.pml > spin.log 2>&1; then echo "$name: spin: $(tail -1 spin.log)"; failed=1; return; fi
  if ! gcc -O1 -w -DMEMLIM=6000 $flags -o pan pan.c; then echo "$name: the checker does not compile"; failed=1; return; fi
  timeout "${TMO:-300}" ./pan $options -m3000000 > pan.log 2>&1
  log=$(grep -oE "errors: [0-9]+" pan.log); errors=${log#errors: }
  local states; states=$(grep "states, stored" pan.log | head -1 | awk '{print $1}')
  if [ -z "$errors" ]; then echo "$name: did not end: $(tail -1 pan.log)"; failed=1
  elif [ "$want" = ok ] && { [ "$errors" != 0 ] || grep -q "Search not completed" pan.log; }; then
    echo "$name [$*]: FAILED, $states states, trace: $d (spin $* -t -p switch.pml)"; failed=1
  elif [ "$want" = error ] && [ "$errors" = 0 ]; then echo "$name [$*]: FAILED, no error found in $states states"; failed=1
  else echo "$name [$*]: $errors errors, $states states, as wanted"; fi
  rm -f pan pan.c pan.h pan.b pan.m pan.t pan.p
}

edges() {
  local model=$out/edges.pml
  mkdir -p "$out"
  # A name for each state, and a check in front of each assignment to a record.
  declare -A id=([coordinator.-]=C0 [coordinator.BEGUN]=CP [coordinator.GRANTED]=CG [coordinator.ABORTED]=CA
    [coordinator.CLOSED-source]=CA [coordinator.CLOSED-target]=CF [coordinator.FORGOTTEN]=CU [source.-]=S0 [source.BARRIER]=SB [source.RESUMED]=SR
    [source.RELEASED]=SX [source.NEVER]=SN [target.-]=T0 [target.COMMITTED]=TC [target.RELINQUISHED]=TQ)
  local -A allowed=([coordinator]=0 [source]=0 [target]=0)
  local list=()
  while read -r party from to; do
    local edge="(old==${id[$party.$from]} && new==${id[$party.$to]})"
    [ "$party.$from" = target.- ] && edge="((old==T0||old==TP||old==TV) && new==${id[$party.$to]})"
    allowed[$party]="${allowed[$party]} || $edge"
    list+=("$party $from $to $edge")
  done < <(grep -v '^#' "$here/transitions.txt")
  # `wanted` is true for the one edge that a run must find; 0 when all must be allowed.
  write_model() {
    local party
    {
      for party in coordinator:ec source:es target:et; do
        local good=${allowed[${party%:*}]} test="0"
        [ "$1" = "${party%:*}" ] && test=$2
        [ "${party%:*}" = target ] && good="$good || new==TP || new==TV"
        [ "${party%:*}" = coordinator ] && good="$good || new==CU"
        if [ -n "$1" ]; then echo "#define ${party#*:}(old,new) assert(!($test))"
        else echo "#define ${party#*:}(old,new) assert(($good))"; fi
      done
      sed -E 's/\bs\[m\]=(S[A-Z0-9])/es(s[m],\1); s[m]=\1/g; s/\bt\[m\]=(T[A-Z0-9])/et(t[m],\1); t[m]=\1/g;
              s/\bc\[m\]=(C[A-Z0-9])/ec(c[m],\1); c[m]=\1/g; s/\bck\[m\]=ck\[m\]\+1/ec(CG,CG); ck[m]=ck[m]+1/g' "$here/switch.pml"
    } > "$model"
  }
  write_model "" ""
  MODEL=$model run edges_all ok -DPROP_ONE -DV_NO_PROMISE -DKPRE=5
  MODEL=$model run edges_all_forget ok -DPROP_ONE -DFORGET
  local line party from to edge
  for line in "${list[@]}"; do
    read -r party from to edge <<< "$line"
    write_model "$party" "$edge"
    local options=(-DV_NO_PROMISE -DKPRE=5)
    [ "$from" = FORGOTTEN ] && options=(-DFORGET)
    MODEL=$model run "edge_${party}_${from}_${to}" error -DPROP_ONE "${options[@]}"
  done
}

case $group in
  holds)
    run safe1 ok
    run safe1_lost2 ok -DMAXLOST=2 -DPROP_ONE
    run safe1_writeoff ok -DWRITEOFF -DPROP_ONE
    run as_built ok -DV_NO_PROMISE
    run live1 ok -DLIVE
    run d1 ok -DLIVE -DPROP_D
    run forget ok -DFORGET
    run forget_lost2 ok -DFORGET -DMAXLOST=2 -DPROP_ONE
    run forget_live ok -DFORGET -DLIVE ;;
  broken)
    for v in FENCE_AGENT CHECK_THEN_START LEASE_ENDED C_ABORTS_ALONE C_FORGETS C_NO_WAIT FINAL_FIRST NO_TOMBSTONE GONE_NOT_DURABLE \
             COMMIT_RUNS PROM_IGNORED T_RUNS_FIRST RECLAIM_OWN; do run "a_$v" error -DV_$v -DPROP_ONE; done
    for v in LATE_RUNS FREE_AT_COMMIT FREE_FIRST S_RUNS_FIRST; do run "b_$v" error -DV_$v; done
    for v in ALWAYS_LEASE NO_PROMISE NORECORD_WAITS; do run "c_$v" error -DV_$v -DLIVE; done
    for v in NO_WAIT ONE_SIDE; do run "f_$v" error -DFORGET -DV_FORGET_$v -DPROP_ONE; done
    run f_EARLY_ANSWER error -DFORGET -DV_FORGET_EARLY_ANSWER ;;
  reached)
    while read -r name state; do REACH_STATE=$state run "reach_$name" error; done <<'EOT'
T_runs_k3 (tr[1]==3&&on[1])
S_runs_k2_T_lost (sr[1]==2&&on[0]&&tr[1]==1&&lost[1])
S_lost_T3 (lost[0]&&on[1]&&tr[1]==3&&sr[1]==2)
closedT (c[1]==4&&on[1]&&tsole[1]&&memS[1]==0)
left_before_barrier (c[1]==3&&s[1]==4&&ck[1]==1&&on[0]&&t[1]==1)
EOT
    while read -r name state; do REACH_STATE=$state run "reach_$name" error -DFORGET; done <<'EOT'
forgot_then_granted (forgot&&termOver&&c[1]==2&&t[1]==3&&on[1])
forgot_then_back (forgot&&termOver&&c[1]==3&&s[1]==2&&on[0])
forgot_then_closed (forgot&&termOver&&c[1]==4&&on[1])
EOT
    ;;
  edges) edges ;;
  long)
    TMO=3000 run safe2k2 ok -DNM=2 -DKPRE=2
    TMO=3000 run a_NOCLOSE error -DNM=2 -DKPRE=2 -DV_NOCLOSE -DPROP_ONE ;;
  *) echo "unknown group $group"; exit 64 ;;
esac
exit $failed
