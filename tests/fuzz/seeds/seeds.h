// SPDX-License-Identifier: Apache-2.0
// The first inputs of the fuzz targets, by the format that the targets decode. Prefixes of an encoding (a
// selector, a length) are described in the target's source.
#pragma once

#include "tests/fuzz/seeds/corpus.h"

namespace ckpt::fuzz {

// These functions (control_seeds.cc) add messages between daemons, and the daemons' records of them.
void add_control_frames(Corpus& corpus);
void add_mover_packets(Corpus& corpus);
void add_job_packets(Corpus& corpus);
void add_journals(Corpus& corpus);
void add_gang_bodies(Corpus& corpus);

// These functions (engine_seeds.cc) add messages of a move.
void add_lane_headers(Corpus& corpus);
void add_backup_files(Corpus& corpus);
void add_chunk_messages(Corpus& corpus);
void add_chunks(Corpus& corpus);
void add_ucx_frames(Corpus& corpus);

// These functions (image_seeds.cc) add plans, manifests, stored jobs, and checkpoint stores of other nodes.
void add_images(Corpus& corpus);
void add_checkpoint_store_requests(Corpus& corpus);

// These functions (agent_seeds.cc) add data that an agent gets from its helpers, its files and another node's
// processes.
void add_image_packs(Corpus& corpus);
void add_file_lists(Corpus& corpus);
void add_context_packets(Corpus& corpus);
void add_instance_files(Corpus& corpus);
void add_health_reports(Corpus& corpus);

// These functions (text_seeds.cc) add texts that users and their programs write.
void add_configurations(Corpus& corpus);
void add_api_bodies(Corpus& corpus);
void add_http_targets(Corpus& corpus);

}  // namespace ckpt::fuzz
