// SPDX-License-Identifier: Apache-2.0
// The bootstrap root of one id. It collects the registrations of all ranks and sends them their table.
//
// Threads: run() in one. The root waits without limit, as NCCL's root does: ranks may register late or never.
// Errors: connections with invalid registrations are closed. Ranks that do not match, or a rank that exits
// before the table is complete, cause an error for all ranks.
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
  // Runs until the table, or an error, was sent.
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
  // Reads from a guest. Returns false if the guest sends no valid registration; drop the guest in this case.
  bool read_from(Guest* guest);
  bool enter(const Guest& guest);
  void look_at(Guest* guest, bool readable);
  void give_up(ncclResult_t result, const std::string& reason);
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
