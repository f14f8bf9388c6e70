// SPDX-License-Identifier: Apache-2.0
// Sample answers of a coordinator, from which the tests create screens.
// Threads: pure functions.
#pragma once

#include "libckpt/api/event.h"
#include "libckpt/api/migration.h"
#include "libckpt/record/document.h"
#include "tools/gpumigrate/client/coordinator_client.h"
#include "tools/gpumigrate/screens/top_view.h"

namespace ckpt::cli {

inline constexpr std::int64_t kSampleNow = 1'767'230'271'000;  // 2026-01-01T01:17:51Z

inline Json sample_jobs() {
  return Json::parse(R"json([
    {"id":"j12-k3fa","name":"big","state":"migrating","node":"node-b","gpu":0,"incarnation":3,"mode":"transparent","movable":false,
     "reason":"it moves","state_bytes":136314880,"priority":0,"memory":{"now_bytes":136314880,"peak_bytes":272629760},
     "started":"2026-01-01T00:32:11.000Z","last_downtime_ms":77.5,"exit_code":null,
     "protection":{"every_ms":600000,"keep":2,"last_image":"j12.v3@node-c","last_image_age_ms":12000,"last_error":null}},
    {"id":"j6-k3fa","name":"plain","state":"running","node":"node-c","gpu":1,"incarnation":9,"mode":"transparent","movable":true,
     "reason":null,"obstacles":2,"state_bytes":4194304,"priority":0,"memory":{"now_bytes":4194304,"peak_bytes":4194304},
     "started":"2026-01-01T00:29:31.000Z","last_downtime_ms":null,"exit_code":null,
     "protection":{"every_ms":600000,"keep":2,"last_image":null,"last_error":"the checkpoint store is full"}},
    {"id":"j13-k3fa","name":"low","state":"parked","node":null,"gpu":null,"incarnation":1,"mode":"cooperative","movable":false,
     "reason":"suspended","state_bytes":35651584,"priority":-5,"memory":{"now_bytes":0,"peak_bytes":35651584},
     "started":"2026-01-01T00:35:00.000Z","last_downtime_ms":20.5,"exit_code":null,"protection":null},
    {"id":"j2-k3fa","name":"a-training-with-a-name-that-goes-on-and-on-2026","state":"exited","node":"node-a","gpu":0,"incarnation":1,
     "mode":"cooperative","movable":false,"reason":null,"state_bytes":1073741824,"priority":0,"memory":{"now_bytes":0,"peak_bytes":1073741824},
     "started":"2025-12-30T20:00:00.000Z","last_downtime_ms":null,"exit_code":143,"protection":null}])json");
}

inline Json sample_job() {
  return Json::parse(
      R"json({"id":"j6-k3fa","name":"plain","state":"running","node":"node-c","gpu":1,"incarnation":9,"mode":"transparent",
     "movable":true,"reason":null,"state_bytes":4194304,"priority":0,"memory":{"now_bytes":4194304,"peak_bytes":4194304},
     "gpu_memory_bytes":0,"started":"2026-01-01T00:29:31.000Z","last_downtime_ms":214.0,"exit_code":null,
     "expected_pause_ms":{"within_node":30.0,"between_nodes":200.0},"expected_pause_from":{"within_node":"last_move","between_nodes":"estimate"},
     "protection":{"every_ms":600000,"keep":2,"last_image":"j6.v1@node-b","last_image_age_ms":12000,"last_pause_ms":0,
       "last_error":"the checkpoint store of node-b has no space left: 1.00 GiB are needed and 12.0 MiB are free"},
     "argv":["charlm-plain","--steps","100000","--step-ms","50"],"cwd":"/tmp","placed":"most free memory","instances":[],
     "migrations":["m1-k3fa","m2-k3fa","m3-k3fa","m15-k3fa","m42-k3fa"],"open_migration":null,"operation":null})json");
}

inline Json sample_migrations() {
  return Json::parse(R"json([
    {"id":"m15-k3fa","job":"j12-k3fa","job_name":"big","state":"precopy","open":true,"from":"node-b:0","to":"node-c:1","strategy":"live",
     "options":{"max_downtime_ms":200.0,"bandwidth":41943040},"reason":null,"started":"2026-01-01T01:17:46.000Z","result":null,
     "progress":{"round":1,"state_bytes":136314880,"remaining_bytes":51799654,"dirty_bytes_per_second":null,"estimate_ms":9000.0,
       "wire_bytes_per_second":41943040,"eta_ms":1900.0},"report":null,"error":null},
    {"id":"m42-k3fa","job":"j6-k3fa","job_name":"plain","state":"closed","open":false,"from":"node-c:1","to":"node-a:0","strategy":"live",
     "options":{"max_downtime_ms":200.0,"bandwidth":41943040},"reason":"[gpumigrate] drain d5-k3fa: new driver",
     "started":"2026-01-01T00:55:00.000Z","result":"done","exit_code":0,"error":null,"runs_at":"node-a:0",
     "report":{"total_ms":7300,"downtime_ms":214.0,"max_downtime_ms":200,"limit_kept":false,"estimate_ms":123.0,"bound_ms":61.2,"bound_by":"link","rounds":4,"sent_bytes":189792256,
       "wire_bytes":138412032,"verified":true,"codec":"auto","link_bytes_per_second":1073741824,"scan_bytes_per_second":4294967296,
       "downtime_breakdown_ms":{"quiesce":0.4,"final":75.2,"verify":0,"commit":1.3,"context":90.0,"host":46.5,"fill":0,"restore":0.3,"resume":0.3}}},
    {"id":"m3-k3fa","job":"j6-k3fa","job_name":"plain","state":"closed","open":false,"from":"node-a:0","to":"node-b:0","strategy":"stop-copy",
     "options":{"max_downtime_ms":200.0,"bandwidth":0},"reason":null,"started":"2025-12-31T20:00:00.000Z","result":"failed","exit_code":1,
     "error":"the link between node-a and node-b was lost while the last chunks were sent","runs_at":"node-a:0","report":null}])json");
}

inline std::vector<api::Migration> sample_moves() {
  return record::list_from_answer<api::Migration>(sample_migrations());
}

inline Json sample_nodes() {
  return Json::parse(R"json([
    {"name":"node-a","state":"ready","gpus":2,"jobs":1,"evacuation":"on","version":"0.1.0","last_seen":"2026-01-01T01:17:50.000Z",
     "driver":"580.159.04","rack":"r1","labels":["zone=a"],"cordons":null},
    {"name":"node-b","state":"ready","gpus":2,"jobs":3,"evacuation":"paused","version":"0.1.0",
     "last_seen":"2026-01-01T01:17:50.000Z","driver":"580.159.04","rack":null,"labels":[],
     "cordons":[{"place":"node-b","owner":"operator","reason":"new driver"},{"place":"node-b:1","owner":"health","reason":"Xid 79"}]},
    {"name":"node-c","state":"unreachable","gpus":2,"jobs":1,"evacuation":"on","version":"0.1.0",
     "last_seen":"2026-01-01T01:10:00.000Z","driver":"580.159.04","rack":null,"labels":[],"cordons":null}])json");
}

inline Json sample_gpus() {
  return Json::parse(R"json([
    {"node":"node-a","index":0,"uuid":"GPU-5d8b1f0e-1111-2222-3333-444455556666","model":"NVIDIA H200","total_bytes":150323855360,
     "available_bytes":140323855360,"expected_bytes":1073741824,"healthy":true,"reason":null,"jobs":[],"memory":{"peak_bytes":1073741824},"cordons":null},
    {"node":"node-b","index":0,"uuid":"GPU-6d8b1f0e-1111-2222-3333-444455556666","model":"NVIDIA H200","total_bytes":150323855360,
     "available_bytes":75497472,"expected_bytes":150000000000,"healthy":false,"reason":"Xid 79: the GPU has fallen off the bus",
     "jobs":["j12-k3fa","j14-k3fa"],"memory":{"peak_bytes":150000000000},"cordons":[{"place":"node-b","owner":"operator","reason":"new driver"}]}])json");
}

inline Json sample_drain() {
  return Json::parse(
      R"json({"id":"d5-k3fa","place":"node-c","open":false,"result":"incomplete","jobs_gone":1,"jobs":[
    {"job":"j13-k3fa","name":"low","state":"moved","from":"node-c:0","to":"node-b:1","state_bytes":35651584,"downtime_ms":20.5,"reason":null,"obstacles":[]},
    {"job":"j6-k3fa","name":"plain","state":"blocked","from":"node-c:1","to":null,"state_bytes":4194304,"downtime_ms":null,
     "reason":"no GPU: 2 cordoned, 2 full, 2 being drained","obstacles":[
      "node-a:0: node-a is cordoned by operator (new driver)","node-a:1: node-a is cordoned by operator (new driver)",
      "node-b:0: 72.00 MiB free after 916.00 MiB that are promised to its jobs, needed are 132.00 MiB (its peak)",
      "node-b:1: 0 B free, needed are 132.00 MiB (its peak)","node-c:0: node-c is cordoned by operator",
      "node-c:1: the job is there already, node-c is cordoned by operator"]}]})json");
}

inline Json sample_events() {
  return Json::parse(R"json([
    {"id":7,"time":"2026-01-01T00:29:31.000Z","kind":"job-started","job":"j6-k3fa","migration":null,"node":"node-c","text":"plain runs at node-c:1"},
    {"id":9,"time":"2026-01-01T01:17:39.000Z","kind":"snapshot-failed","job":"j6-k3fa","migration":null,"node":"node-c",
     "text":"the checkpoint store of node-b has no space left: 1.00 GiB are needed and 12.0 MiB are free"}])json");
}

inline Json sample_images() {
  return Json::parse(R"json([
    {"id":"j6-k3fa.v1@node-b","job":"j6-k3fa","job_name":"plain","version":1,"sequence":4,"node":"node-b","created":"2026-01-01T01:17:39.000Z",
     "age_ms":12000,"state_bytes":4194304,"new_bytes":4194304,"pause_ms":30.25,"tier":"disk","gpu_model":"NVIDIA H200","damaged":false,"readable":true},
    {"id":"j12-k3fa.v3@/mnt/vault-of-the-whole-cluster","job":"j12-k3fa","job_name":"a-training-with-a-name-that-goes-on-and-on-2026",
     "version":3,"sequence":5,"node":"node-c","created":"2025-12-30T20:00:00.000Z","age_ms":105471000,"state_bytes":136314880,"new_bytes":1048576,
     "pause_ms":0.0,"tier":"memory+disk","gpu_model":"NVIDIA H200","damaged":false,"readable":false},
    {"id":"j13-k3fa.v1@node-a","job":"j13-k3fa","job_name":"low","version":1,"sequence":6,"node":"node-a","created":"2026-01-01T01:00:00.000Z",
     "age_ms":1071000,"state_bytes":35651584,"new_bytes":35651584,"pause_ms":20.5,"tier":"memory","gpu_model":"NVIDIA H200","damaged":true,"readable":true}])json");
}

inline Json sample_health() {
  return Json::parse(
      R"json({"policy":{"paused":["node-b"],"breaker":{"open":true,"since":"2026-01-01T01:00:00.000Z",
     "reason":"20 evacuations within 10 minutes","recent":20,"limit":20,"window_ms":600000}},
    "evacuations":[{"id":"e4","job":"j6-k3fa","job_name":"plain","state":"restored","outcome":"restore","urgent":true,"from":"node-b:0",
     "to":"node-a:1","lost_ms":72000,"created":"2026-01-01T01:10:00.000Z","reason":"Xid 79: the GPU has fallen off the bus","note":null}],
    "findings":[{"node":"node-b","gpu":0,"time":"2026-01-01T01:10:00.000Z","xid":79,"source":"kernel-log","cordon":true,
     "reason":"Xid 79: the GPU has fallen off the bus; the node has to be started again"}]})json");
}

inline Json sample_rebalance() {
  return Json::parse(
      R"json({"state":"running","freed":["node-a:0","node-b:1"],"free_before":0,"free_after":2,"exhaustive":false,
    "moves":[{"job":"j6-k3fa","name":"plain","from":"node-a:0","to":"node-c:1","needed_bytes":4194304,"reason":"frees node-a:0",
      "state":"failed","migration":"m42-k3fa","error":"the link between node-a and node-c was lost"},
     {"job":"j12-k3fa","name":"a-training-with-a-name-that-goes-on-and-on-2026","from":"node-b:1","to":"node-c:1",
      "needed_bytes":136314880,"reason":"frees node-b:1","state":"moving","migration":"m43-k3fa","error":null}],
    "fixed":[{"job":"j13-k3fa","name":"low","reason":"it was adopted with a pipe as its standard output"}]})json");
}

inline Json sample_recovery() {
  return Json::parse(
      R"json({"found":[{"time_ms":1,"kind":"job","node":"node-a","job":"j6-k3fa","migration":null,
      "text":"plain runs there as incarnation 9, started from its image of 01:00"}],
    "undecided":[{"migration":"m42-k3fa","job":"j6-k3fa","away":["node-b","node-c"]}],
    "images_of_unknown_jobs":[{"job":"j13-k3fa","name":"low","image":"j13-k3fa.v1@node-a","obstacle":null},
     {"job":"j14-k3fa","name":"ranks-0","image":"j14-k3fa.v2@node-a",
      "obstacle":"Image j14-k3fa.v2@node-a is one of a set, from which all ranks of its job must continue together"}],
    "nodes_away":["node-c"]})json");
}

template <class Plan>
Plan sample_plan(bool possible) {
  Json plan = Json::parse(
      R"json({"dry_run":true,"job":"j6-k3fa","from":"node-a:0","to":"node-b:0","strategy":"live","possible":true,
    "state_bytes":4194304,"expected_pause_ms":30.0,"expected_pause_from":"last_move","reason":null,"candidates":[
    {"node":"node-b","gpu":0,"suitable":true,"score":0.75,"cause":null,"reasons":["1.00 GiB free of 1.00 GiB (+0.50)","the same rack (+0.25)"]},
    {"node":"node-a","gpu":0,"suitable":false,"score":null,"cause":"current","reasons":["the job is there already"]},
    {"node":"node-a","gpu":1,"suitable":false,"score":null,"cause":"full","reasons":["72.00 MiB free, needed are 132.00 MiB (its peak)"]},
    {"node":"node-b","gpu":1,"suitable":false,"score":null,"cause":"full","reasons":["0 B free, needed are 132.00 MiB (its peak)"]}]})json");
  if (possible) return record::from_answer<Plan>(plan);
  plan["possible"] = false;
  plan["to"] = nullptr;
  plan["reason"] = "No GPU can hold plain: 2 full, 1 current";
  plan["candidates"].erase(0);
  return record::from_answer<Plan>(plan);
}

inline Json sample_open_drain() {
  return Json::parse(R"json({"id":"d5-k3fa","place":"node-b","open":true,"result":null,"jobs":[
    {"job":"j13-k3fa","name":"low","state":"moved","from":"node-b:1","to":"node-a:1","migration":"m14-k3fa"},
    {"job":"j12-k3fa","name":"big","state":"moving","from":"node-b:0","to":"node-c:1","migration":"m15-k3fa"},
    {"job":"j2-k3fa","name":"a-training-with-a-name-that-goes-on-and-on-2026","state":"restoring","from":"node-b:1","to":"node-a:0","migration":null},
    {"job":"j6-k3fa","name":"plain","state":"blocked","from":"node-b:1","to":null,"migration":null}]})json");
}

inline ClusterNow sample_cluster() {
  return {.jobs = sample_jobs(), .gpus = sample_gpus(), .migrations = sample_migrations()};
}

}  // namespace ckpt::cli
