// SPDX-License-Identifier: Apache-2.0
// Command: fuzz_make_corpus DIRECTORY. It writes the first inputs of the fuzz targets' corpora, made from
// real encodings. In DIRECTORY each target has a folder, whose files corpus_pack.py adds to its pack.
// tools/fuzz --merge adds the inputs that the fuzzers find.
#include <iostream>

#include "tests/fuzz/seeds/seeds.h"

namespace ckpt::fuzz {
namespace {

void make(Corpus& corpus) {
  add_control_frames(corpus);
  add_mover_packets(corpus);
  add_job_packets(corpus);
  add_journals(corpus);
  add_gang_bodies(corpus);
  add_images(corpus);
  add_lane_headers(corpus);
  add_chunk_messages(corpus);
  add_configurations(corpus);
  add_api_bodies(corpus);
  add_chunks(corpus);
  add_image_packs(corpus);
  add_file_lists(corpus);
  add_context_packets(corpus);
  add_instance_files(corpus);
  add_health_reports(corpus);
  add_http_targets(corpus);
  add_ucx_frames(corpus);
  add_checkpoint_store_requests(corpus);
  add_backup_files(corpus);
}

}  // namespace
}  // namespace ckpt::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_make_corpus DIRECTORY\n";
    return 64;
  }
  ckpt::fuzz::Corpus corpus(argv[1]);
  ckpt::fuzz::make(corpus);
  return 0;
}
