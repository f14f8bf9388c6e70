// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/seeds/seeds.h"

namespace ckpt::fuzz {

void add_configurations(Corpus& corpus) {
  const char* target = "configuration";
  corpus.add(target, "agent", std::string(1, '\0') + R"(node = "node-a"
home = "/var/lib/gpumigrate"
coordinator = "127.0.0.1:4000"
token_file = "/t"
peer_listen = "127.0.0.1:0"
insecure = false
log_level = "debug"
job_environment = ["A=b", "C="]
[lease]
term_ms = 5000
[timeouts]
pause_ms = 60000
standby_ms = 1
[mover]
staging_mib = 64
restart_ms = 200
)");
  corpus.add(target, "agent_by_file",
             std::string(1, '\0') + "node='n'\nhome='/h'\ncoordinator_file='/c'\npeer_listen='unix:/p'\n");
  corpus.add(target, "coordinator",
             "\1"
             R"(home = "~/x"
api_address = "127.0.0.1:0"
agent_address = "127.0.0.1:0"
metrics_without_token = true
log_level = "off"
lease_term_ms = 100
handover_timeout_ms = 0x7fff
agent_idle_timeout_ms = 1_000
placement_margin_bytes = 67108864
)");
  corpus.add(target, "keeper",
             "\2"
             R"({"job":"j1","name":"n","incarnation":3,"role":"standby","argv":["x","y"],"env":{"A":"b"},
"cwd":"/tmp","ranks":1,"uid":0,"gid":null})");
  corpus.add(target, "visible_gpus",
             "\3"
             "2,0,x");
}

void add_api_bodies(Corpus& corpus) {
  corpus.add("api_bodies", "migrate",
             R"({"to":"node-b:0","strategy":"live","bandwidth":4096,"slowdown_percent":2.5,"dry_run":true})");
  corpus.add("api_bodies", "submit", R"({"argv":["./x","\u00e4"],"env":{"A":"b","C":""}})");
  corpus.add(
      "api_bodies", "odd",
      R"({"to":null,"strategy":"x","bandwidth":1e3,"slowdown_percent":-1,"argv":[1],"env":{"=":"b"}})");
  corpus.add("api_bodies", "zero_bytes", R"({"env":{"A\u0000B":"x"},"argv":["a\u0000"],"to":"b\u0000"})");
  corpus.add("api_bodies", "deep", std::string(20, '[') + std::string(20, ']'));
}

void add_http_targets(Corpus& corpus) {
  corpus.add("http_targets", "job", "/v1/jobs/j-1/log?from=0&follow");
  corpus.add("http_targets", "escaped", "/v1/%6aobs/%2F%00?a%3Db=c%26d&a%3db=");
  corpus.add("http_targets", "cut_escape", "/v1/jobs%2");
  corpus.add("http_targets", "empty_pieces", "//a//?&&=&x");
}

}  // namespace ckpt::fuzz
