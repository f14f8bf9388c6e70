// SPDX-License-Identifier: Apache-2.0
// The bootstrap root of one id: gathers the registrations of all ranks and gives out their table.
//
// Threads: run() in one. It waits without an end, as NCCL's does: ranks may come late or never.
// Errors: what is no registration is closed. Ranks that do not fit together, or one that is gone before the
// table is complete, are an error to all.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulators/ncclsim/transport/bootstrap_wire.h"

namespace ncclsim {

class Root {
 public:
  Root(Descriptor listener, std::uint64_t secret) : listener_(std::move(listener)), secret_(secret) {}
  // Until the table, or an error, was given out.
  void run();

 private:
  struct Guest {
    Descriptor socket;
    Registration registration;
    std::size_t got = 0;
    Clock::time_point deadline;
    [[nodiscard]] bool registered() const { return socket.valid() && got == sizeof registration; }
  };
  void accept_guests();
  // False: it is none, and to be forgotten.
  bool read_from(Guest* guest);
  bool enter(const Guest& guest);
  void look_at(Guest* guest, bool readable);
  void give_up(ncclResult_t result, const std::string& why);
  void answer_all(const RootAnswer& answer, const std::vector<RankInfo>& table);
  [[nodiscard]] Clock::time_point next_deadline() const;

  Descriptor listener_;
  std::uint64_t secret_;
  std::list<Guest> guests_;
  int expected_ = 0;
  int present_ = 0;
  bool done_ = false;
};

}  // namespace ncclsim
