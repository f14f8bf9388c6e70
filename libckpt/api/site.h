// SPDX-License-Identifier: Apache-2.0
// The cluster itself as the API shows it (docs/api.md): its status, joining and removed nodes, denied
// certificates, a backup, and recovered facts. Texts are ids and times (RFC 3339, UTC). An optional member
// without a value is null.
// Threads: plain values. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/record/fields.h"

namespace ckpt::api {

struct Status {
  std::string version;
  std::uint32_t api = 0;  // the version of the API
  std::string started;
  std::uint64_t nodes = 0;
  std::uint64_t nodes_ready = 0;
  std::uint64_t jobs_live = 0;
  std::uint64_t migrations_open = 0;
  bool breaker_open = false;
  std::string agent_address;
};
template <std::same_as<Status> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("version", &T::version), record::field("api", &T::api),
      record::field("started", &T::started), record::field("nodes", &T::nodes),
      record::field("nodes_ready", &T::nodes_ready), record::field("jobs_live", &T::jobs_live),
      record::field("migrations_open", &T::migrations_open), record::field("breaker_open", &T::breaker_open),
      record::field("agent_address", &T::agent_address));
}

// The node that a call referred to.
struct NodeSubject {
  std::string node;
};
template <std::same_as<NodeSubject> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("node", &T::node));
}

// The answer to a machine that joins as a node.
struct NodeJoin {
  std::string node;
  std::string certificate;  // the certificate of the node as PEM
  std::string agent_address;
  std::string agent_token;
};
template <std::same_as<NodeJoin> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("node", &T::node), record::field("certificate", &T::certificate),
                        record::field("agent_address", &T::agent_address),
                        record::field("agent_token", &T::agent_token));
}

// The problem of a removal. Only a removal whose fence command failed has one.
struct FenceFailure {
  std::string problem;
};
template <std::same_as<FenceFailure> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("fence_problem", &T::problem));
}

struct NodeRemoval {
  std::string node;
  bool fenced = false;
  std::vector<std::string> lost;  // the jobs that were lost with the node
  std::optional<FenceFailure> failure;
};
template <std::same_as<NodeRemoval> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("node", &T::node), record::field("fenced", &T::fenced),
                        record::field("lost", &T::lost), record::inlined(&T::failure));
}

// A certificate that is refused before it expires, or all certificates of a node, which have no single serial
// number.
struct DeniedCertificate {
  std::optional<std::string> serial;
  std::string of;  // the name in the certificate, for people
  std::string reason;
  std::optional<std::string> ends;
  std::string denied;
};
template <std::same_as<DeniedCertificate> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("serial", &T::serial), record::field("of", &T::of),
                        record::field("reason", &T::reason), record::field("ends", &T::ends),
                        record::field("denied", &T::denied));
}

struct SerialSubject {
  std::string serial;
};
template <std::same_as<SerialSubject> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("serial", &T::serial));
}

// The subject of a denial, or of a request to end the denial. Exactly one of the two members is set.
struct DenialSubject {
  std::optional<NodeSubject> node;
  std::optional<SerialSubject> serial;
};
template <std::same_as<DenialSubject> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::inlined(&T::node), record::inlined(&T::serial));
}

struct Backup {
  std::string file;
  std::uint64_t bytes = 0;
  std::string cluster;
  std::int64_t made_ms = 0;  // the Unix time of the backup
  std::uint64_t jobs = 0;
  std::uint64_t migrations = 0;
};
template <std::same_as<Backup> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("file", &T::file), record::field("bytes", &T::bytes),
                        record::field("cluster", &T::cluster), record::field("made_ms", &T::made_ms),
                        record::field("jobs", &T::jobs), record::field("migrations", &T::migrations));
}

// A fact that a node has reported and that was missing in the store.
struct RecoveryFact {
  std::int64_t time_ms = 0;  // the Unix time of the report
  std::string kind;
  std::string node;
  std::optional<std::string> job;
  std::optional<std::string> migration;
  std::string text;
  bool taken_in = false;
};
template <std::same_as<RecoveryFact> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("time_ms", &T::time_ms), record::field("kind", &T::kind),
                        record::field("node", &T::node), record::field("job", &T::job),
                        record::field("migration", &T::migration), record::field("text", &T::text),
                        record::field("taken_in", &T::taken_in));
}

// A migration without a record, for which some nodes have not reported the outcome.
struct UndecidedMigration {
  std::string migration;
  std::string job;
  std::vector<std::string> away;  // the nodes that are not connected
};
template <std::same_as<UndecidedMigration> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("migration", &T::migration), record::field("job", &T::job),
                        record::field("away", &T::away));
}

struct ImageOfUnknownJob {
  std::string job;
  std::string name;
  std::string image;
  std::optional<std::string> obstacle;  // the reason why no job can continue from the image; null if no such
                                        // reason is known
};
template <std::same_as<ImageOfUnknownJob> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("job", &T::job), record::field("name", &T::name),
                        record::field("image", &T::image), record::field("obstacle", &T::obstacle));
}

struct Recovery {
  std::optional<std::string> open_until;  // the time until which reports of nodes are accepted
  std::vector<RecoveryFact> found;
  std::vector<UndecidedMigration> undecided;
  std::vector<ImageOfUnknownJob> images_of_unknown_jobs;
  std::vector<std::string> nodes_away;
};
template <std::same_as<Recovery> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("open_until", &T::open_until), record::field("found", &T::found),
                        record::field("undecided", &T::undecided),
                        record::field("images_of_unknown_jobs", &T::images_of_unknown_jobs),
                        record::field("nodes_away", &T::nodes_away));
}

}  // namespace ckpt::api
