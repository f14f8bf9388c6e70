// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/transport/bootstrap.h"

#include <sys/random.h>

#include <cstring>
#include <memory>
#include <thread>

#include "tests/simulators/ncclsim/transport/bootstrap_wire.h"
#include "tests/simulators/ncclsim/transport/root.h"

namespace ncclsim {
namespace {

constexpr std::uint64_t kIdTag = 0x314d49534c43434eULL;  // the text "NCCLSIM1"

struct IdContent {
  std::uint64_t tag = 0;
  std::uint64_t secret = 0;
  Endpoint root;
};
static_assert(sizeof(IdContent) <= NCCL_UNIQUE_ID_BYTES);

ncclResult_t read_id(const ncclUniqueId& id, IdContent* out) {
  std::memcpy(out, id.internal, sizeof *out);
  NCCLSIM_CHECK(out->tag == kIdTag, ncclInvalidArgument, "this ncclUniqueId was not made by ncclGetUniqueId");
  return ncclSuccess;
}

ncclResult_t check_table(const RankInfo& self, const std::vector<RankInfo>& table) {
  for (int rank = 0; rank < self.ranks; rank++) {
    NCCLSIM_CHECK(table[rank].rank == rank && table[rank].ranks == self.ranks, ncclInternalError,
                  "the bootstrap root sent a table that is none");
  }
  return ncclSuccess;
}

}  // namespace

ncclResult_t start_root(ncclUniqueId* id) {
  IdContent content{kIdTag, 0, {}};
  NCCLSIM_CHECK(::getrandom(&content.secret, sizeof content.secret, 0) == sizeof content.secret,
                ncclSystemError, "no random number");
  Endpoint address;
  NCCLSIM_TRY(own_address(&address));
  Descriptor listener;
  NCCLSIM_TRY(listen_at(address, &listener, &content.root));
  auto root = std::make_shared<Root>(std::move(listener), content.secret);
  std::thread([root] { root->run(); }).detach();
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, &content, sizeof content);
  return ncclSuccess;
}

ncclResult_t secret_of(const ncclUniqueId& id, std::uint64_t* secret) {
  IdContent content;
  NCCLSIM_TRY(read_id(id, &content));
  *secret = content.secret;
  return ncclSuccess;
}

ncclResult_t meet(const ncclUniqueId& id, const RankInfo& self, const Limits& limits,
                  std::vector<RankInfo>* table) {
  IdContent content;
  NCCLSIM_TRY(read_id(id, &content));
  Descriptor socket;
  NCCLSIM_TRY(connect_to(content.root, limits, &socket));
  const Registration registration{content.secret, self};
  NCCLSIM_TRY(send_all(socket.get(), &registration, sizeof registration, limits));
  RootAnswer answer{};
  NCCLSIM_TRY(receive_all(socket.get(), &answer, sizeof answer, limits));
  answer.text[sizeof answer.text - 1] = '\0';
  NCCLSIM_CHECK(answer.result == ncclSuccess,
                answer.result == ncclRemoteError ? ncclRemoteError : ncclInvalidUsage, "%s", answer.text);
  table->resize(static_cast<std::size_t>(self.ranks));
  NCCLSIM_TRY(receive_all(socket.get(), table->data(), table->size() * sizeof(RankInfo), limits));
  return check_table(self, *table);
}

}  // namespace ncclsim
