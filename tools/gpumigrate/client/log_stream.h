// SPDX-License-Identifier: Apache-2.0
// A job's output over all its instances, copied to the command's output. Where an instance was restored from
// an image a line in brackets marks it, since the log may repeat what came before.
// Threads: one. Ownership: borrows the context. Errors: those of the coordinator's client.
#pragma once

#include <functional>
#include <string>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

struct LogWish {
  bool timestamps = false;
  std::int64_t since_ms = 0;  // Unix time: without what was seen before; 0: all
  int rank = 0;               // of a job of several
};

class LogStream {
 public:
  LogStream(Context& context, std::string job, LogWish wish = {})
      : context_(context), job_(std::move(job)), wish_(wish) {}

  // One call; false once the job has ended and all has been copied.
  Result<bool> next(std::chrono::milliseconds follow);
  // Whether the last call brought bytes, and more that was there before may follow. A job that writes faster than
  // calls are made is not read for ever.
  [[nodiscard]] bool copied() const noexcept { return copied_; }
  // Copies the last `lines` of what there is; next() goes on behind them. Only the end of the log is read.
  Result<void> copy_tail(std::uint64_t lines);
  // To the end, through moves and through any absence of the coordinator. `on_interrupt` may end it with an
  // error.
  Result<void> follow(const std::function<Result<void>()>& on_interrupt);

 private:
  // Returns the output that the next call brings, marks included, and goes on behind it.
  Result<std::string> read(std::chrono::milliseconds follow);
  Result<std::string> read_to_end(std::uint64_t from);
  std::string mark_of(const LogPiece& piece) const;

  Context& context_;
  std::string job_;
  LogWish wish_;
  std::uint64_t offset_ = 0;
  std::string incarnation_;  // whose output came last
  bool begins_line_ = true;
  unsigned short_pieces_ = 0;  // one after the other, of one incarnation
  std::string missing_;        // nodes whose part is left out, as was told
  bool copied_ = false;
  bool ended_ = false;
};

}  // namespace ckpt::cli
