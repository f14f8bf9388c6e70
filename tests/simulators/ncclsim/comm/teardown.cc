// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/comm/teardown.h"

#include "tests/simulators/ncclsim/comm/group.h"

namespace ncclsim {
namespace {

ncclResult_t finalize(Communicator* communicator) {
  NCCLSIM_TRY(communicator->proxy->drain());
  communicator->graphs->wait_for_none();
  return ncclSuccess;
}

void free_communicator(Communicator* communicator) {
  strike(communicator);
  communicator->take_down();
  delete communicator;
}

}  // namespace

void stop_operations(Communicator* communicator) {
  communicator->revoked = true;
  if (Proxy* proxy = communicator->working; proxy != nullptr) proxy->stop();
}

ncclResult_t begin_finalize(Communicator* communicator) {
  NCCLSIM_TRY(communicator->ensure_ready());
  NCCLSIM_CHECK(!communicator->finalized && !communicator->revoked, ncclInvalidArgument,
                "the communicator has been finalized or revoked");
  communicator->finalized = true;
  Group::current().add_job(
      {communicator, nullptr, nullptr, [communicator] { return finalize(communicator); }});
  return ncclSuccess;
}

ncclResult_t begin_revoke(Communicator* communicator) {
  NCCLSIM_CHECK(!communicator->finalized && !communicator->revoked, ncclInvalidArgument,
                "the communicator has been finalized or revoked");
  if (communicator->async_error() == ncclInProgress) {
    communicator->aborted.set();  // an incomplete creation ends with an error
    communicator->job->wait();
  }
  stop_operations(communicator);
  Group::current().add_job({communicator, nullptr, nullptr, [] { return ncclSuccess; }});
  return ncclSuccess;
}

ncclResult_t destroy(Communicator* communicator) {
  NCCLSIM_TRY(communicator->ensure_ready());
  communicator->job->wait();
  if (!communicator->finalized && !communicator->revoked) NCCLSIM_TRY(communicator->proxy->drain());
  communicator->graphs->wait_for_none();
  free_communicator(communicator);
  return ncclSuccess;
}

ncclResult_t abort(Communicator* communicator) {
  communicator->aborted.set();
  // The first stop ends the wait of a finalize. A creation may still create its proxy until the job has
  // ended, so a second stop is needed.
  stop_operations(communicator);
  communicator->job->wait();
  stop_operations(communicator);
  communicator->graphs->wait_for_none();
  free_communicator(communicator);
  return ncclSuccess;
}

}  // namespace ncclsim
