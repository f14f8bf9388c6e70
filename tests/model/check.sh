#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs one group of the checks of MODEL.pml (switch) with spin, as MODEL.runs lists them: check.sh FOLDER GROUP [MODEL]. On
# a difference it prints a line and exits with 1. MODEL.runs has these lines:
#   GROUP NAME ok|error [-D...]   a run: no reachable state has an error, or an error must be found
#   state NAME EXPRESSION         the run above must reach this state
#   record PARTY VARIABLE C       PARTY's record is VARIABLE (a regular expression); its values are constants that begin with C
#   name PARTY RECORD VALUE...    the name of these values in the table of transitions; "-" and FORGOTTEN are no records
#   transitions FILE              the runs of the group edges together take exactly the transitions of FILE
#   memory MIB                    the most that a run may take (6000)
# The groups: holds (the protocol), broken (deliberately broken variants), reached (states without which
# `holds` would be vacuous), edges, and long (minutes, gigabytes; not part of ctest's default).
here=$(cd "$(dirname "$0")" && pwd)
out=$1
group=$2
model=${3:-switch}
runs=$here/$model.runs
limit=300
[ "$group" = long ] && limit=3000
memory=$(awk '$1 == "memory" {print $2}' "$runs")
failed=0

# Checks SOURCE in a folder of its own, and leaves the checker's output in pan.log there: run NAME WANT SOURCE [-D...].
run() {
  local name=$1 want=$2 source=$3 flags="-DSAFETY -DNOREDUCE -DBFS" options="-E" errors states
  shift 3
  local d=$out/$name
  rm -rf "$d"; mkdir -p "$d"; cd "$d" || exit 1
  cp "$source" "$model.pml"
  if [[ "$*" == *-DLIVE* ]]; then flags="-DNOREDUCE"; options="-a"; fi
  if ! spin "$@" -a "$model.pml" > spin.log 2>&1; then echo "$name: spin: $(tail -1 spin.log)"; failed=1; return; fi
  if ! gcc -O1 -w -DMEMLIM="${memory:-6000}" $flags -o pan pan.c; then echo "$name: the checker does not compile"; failed=1; return; fi
  timeout "$limit" ./pan $options -m3000000 > pan.log 2>&1
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log | tail -1)
  states=$(grep "states, stored" pan.log | head -1 | awk '{print $1}')
  if [ -z "$errors" ] || { [ "$errors" = 0 ] && grep -q "Search not completed" pan.log; }; then
    echo "$name [$*]: FAILED, did not end: $(grep -m1 "^pan:" pan.log)"; failed=1
  elif [ "$want" = ok ] && [ "$errors" != 0 ]; then
    echo "$name [$*]: FAILED, $states states, trace: $d (spin $* -t -p $model.pml)"; failed=1
  elif [ "$want" = error ] && [ "$errors" = 0 ]; then echo "$name [$*]: FAILED, no error found in $states states"; failed=1
  else echo "$name [$*]: $errors errors, $states states, as wanted"; fi
  rm -f pan pan.c pan.h pan.b pan.m pan.t pan.p
}

# The checker's C code prints SEEN WHAT only once for each WHAT.
seen_once='c_decl { static unsigned char seen_[65536]; static void seen(unsigned k) { if (!seen_[k]) { seen_[k] = 1; printf("SEEN %u\n", k); } } }'

# Makes one run over all states that are listed after it: reached NAME [-D...].
reached() {
  local name=$1 source=$out/$1.pml names=() options="" state expression k
  shift
  while read -r state expression; do
    options+=" :: d_step { $expression -> c_code { seen(${#names[@]}); } }"
    names+=("$state")
  done < <(awk -v name="$name" '$1 == "state" && found {sub(/^state +/, ""); print; next} $1 != "state" {found = $1 == "reached" && $2 == name}' "$runs")
  { echo "$seen_once"; echo "#define REACH"; echo "#define REACHED $options"; cat "$here/$model.pml"; } > "$source"
  run "$name" ok "$source" "$@"
  for k in "${!names[@]}"; do
    if ! grep -qx "SEEN $k" "$out/$name/pan.log"; then echo "$name [$*]: FAILED, ${names[$k]} is not reached"; failed=1; fi
  done
  echo "$name: ${#names[@]} states looked for"
}

# Prints the number of a constant of the model: value NAME.
value() { awk -v name="$1" '$1 == "#define" && $2 == name {print $3}' "$here/$model.pml"; }

edges() {
  local source=$out/edges.pml parties=() substitutions="" party variable prefix record k from to name want options
  local -A numbers edge_name found
  {
    echo "$seen_once"
    while read -r party variable prefix; do
      echo "#define edge_$party(old,new) c_code { seen(${#parties[@]} * 4096 + now.old * 64 + new); }"
      substitutions+="s/(^|[^a-zA-Z0-9_])($variable)=($prefix[A-Z0-9])/\1edge_$party(\2,\3); \2=\3/g;"
      parties+=("$party")
    done < <(sed -n 's/^record //p' "$runs")
    sed -E "$substitutions" "$here/$model.pml"
  } > "$source"
  while read -r party record values; do
    for k in $values; do numbers[$party.$record]+=" $(value "$k")"; done
  done < <(sed -n 's/^name //p' "$runs")
  # The transitions that the table allows, by number.
  while read -r party from to; do
    for k in "${!parties[@]}"; do
      [ "${parties[$k]}" = "$party" ] || continue
      [ -n "${numbers[$party.$from]}" ] && [ -n "${numbers[$party.$to]}" ] || { echo "edges: $party $from $to has no values in $runs"; failed=1; }
      for f in ${numbers[$party.$from]}; do for t in ${numbers[$party.$to]}; do
        edge_name[$((k * 4096 + f * 64 + t))]="$party $from $to"
      done; done
    done
  done < <(grep -v '^#' "$here/$(sed -n 's/^transitions //p' "$runs")")
  while read -r name want options; do
    run "$name" "$want" "$source" $options
    while read -r _ number; do
      if [ -n "${edge_name[$number]}" ]; then found[${edge_name[$number]}]=1; continue; fi
      party=${parties[$((number / 4096))]}
      for to in - FORGOTTEN; do
        for k in ${numbers[$party.$to]}; do [ "$k" = $((number % 64)) ] && continue 3; done
      done
      echo "$name: FAILED, $party's record goes from $((number / 64 % 64)) to $((number % 64)), which the table does not allow"; failed=1
    done < <(grep "^SEEN" "$out/$name/pan.log")
  done < <(sed -n 's/^edges //p' "$runs")
  for name in "${edge_name[@]}"; do
    [ -n "${found[$name]}" ] || { echo "edges: FAILED, $name never happens"; failed=1; }
  done
  echo "edges: ${#found[@]} transitions found"
}

mkdir -p "$out"
out=$(cd "$out" && pwd)
if [ "$group" = edges ]; then
  edges
else
  grep -q "^$group " "$runs" || { echo "$model.runs has no group $group"; exit 64; }
  while read -r name want options; do
    if [ "$group" = reached ]; then reached "$name" $options; else run "$name" "$want" "$here/$model.pml" $options; fi
  done < <(sed -n "s/^$group //p" "$runs")
fi
exit $failed
