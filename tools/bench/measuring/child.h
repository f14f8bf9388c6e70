// SPDX-License-Identifier: Apache-2.0
// A second process of the bench: this program, started again by fork and exec. It therefore has its own CUDA
// context and UCX, like a mover. Small JSON messages over a socketpair control it.
//
//   CKPT_TRY(child, Child::start(options.program, "tcp-sink"));
//   CKPT_TRYV(child->send({{"port", 4711}}));  CKPT_TRY(answer, child->receive());
//   CKPT_TRYV(child->finish());                       // closes the socket: the child ends
//
// Roles are listed in child_roles.def. A child that encounters an error sends {"error": text}, which
// receive() returns as an Error.
// Threads: one per Child. Ownership: without finish(), the destructor of a Child closes the socket, and kills
// and reaps the process. Errors: kUnavailable if the other side has exited, kProtocol for any message that is
// not a JSON object.
#pragma once

#include <sys/types.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::bench {

inline constexpr std::string_view kChildCommand = "--child";

// One end of the connection between parent and child.
class Link {
 public:
  explicit Link(UniqueFd socket) : socket_(std::move(socket)) {}
  Result<void> send(const nlohmann::json& message) const;
  Result<nlohmann::json> receive() const;
  void close() { socket_.reset(); }

 private:
  UniqueFd socket_;
};

class Child {
 public:
  static Result<std::unique_ptr<Child>> start(const std::string& program, const std::string& role);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  Result<void> send(const nlohmann::json& message) const { return link_.send(message); }
  Result<nlohmann::json> receive() const { return link_.receive(); }
  Result<nlohmann::json> ask(const nlohmann::json& message) const;
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  // Closes the socket and waits for the child's exit. Returns kAborted unless the child exits with code 0.
  Result<void> finish();

 private:
  Child(UniqueFd socket, pid_t pid) : link_(std::move(socket)), pid_(pid) {}
  Link link_;
  pid_t pid_;
};

// Runs a child as its main(). `argv` is PROGRAM --child ROLE, and the socket is descriptor 3.
int run_child(int argc, char** argv);

// These functions return the value of a message's field. They return kProtocol if it is missing or of another
// type.
Result<std::uint64_t> number_of(const nlohmann::json& message, const char* field);
Result<std::string> text_of(const nlohmann::json& message, const char* field);

}  // namespace ckpt::bench
