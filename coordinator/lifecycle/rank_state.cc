// SPDX-License-Identifier: Apache-2.0
#include "coordinator/lifecycle/rank_state.h"

#include <algorithm>

namespace ckpt::coordinator::lifecycle {
namespace {

using enum RankState;

constexpr Transition kTransitions[] = {
    // The rank becomes known: submitted, adopted, found on a node, or revived from an image.
    {kNone, kStarting},
    {kNone, kRunning},
    {kNone, kParked},
    // The rank starts, runs and ends.
    {kStarting, kRunning},
    {kStarting, kExited},
    {kStarting, kFailed},
    {kStarting, kLost},
    {kRunning, kExited},
    {kRunning, kLost},
    // The rank is parked in an image.
    {kRunning, kParking},
    {kParking, kRunning},
    {kParking, kParked},
    {kRunning, kEndingRest},
    {kExited, kEndingRest},
    {kFailed, kEndingRest},
    {kLost, kEndingRest},
    {kEndingRest, kParked},
    // The rank returns from an image.
    {kRunning, kEndingStart},
    {kParked, kEndingStart},
    {kExited, kEndingStart},
    {kFailed, kEndingStart},
    {kLost, kEndingStart},
    {kEndingStart, kEndingRest},
    {kEndingStart, kComing},
    {kComing, kRunning},
    {kComing, kParked},
    {kComing, kFailed},
    {kParked, kExited},
    // Another restore, requested by the operator, replaces an operation.
    {kParking, kEndingStart},
    {kEndingRest, kEndingStart},
    {kComing, kEndingStart},
    // The rank is found running although it was not expected to run.
    {kParked, kRunning},
    {kExited, kRunning},
    {kFailed, kRunning},
    {kLost, kRunning},
    // The rank is removed.
    {kExited, kGone},
    {kFailed, kGone},
    {kLost, kGone},
};

}  // namespace

RankState state_of(const Job& rank) {
  if (rank.operation) {
    switch (rank.operation->stage) {
      case OperationStage::kTaking:
        return kParking;
      case OperationStage::kEnding:
        return rank.operation->goal == OperationGoal::kRunning ? kEndingStart : kEndingRest;
      case OperationStage::kStarting:
        return kComing;
    }
  }
  switch (rank.state) {
    case JobState::kStarting:
      return kStarting;
    case JobState::kExited:
      return kExited;
    case JobState::kFailed:
      return kFailed;
    case JobState::kLost:
      return kLost;
    case JobState::kParked:
      return kParked;
    case JobState::kRunning:
    case JobState::kRestoring:  // no build has written this state without an operation
      break;
  }
  return kRunning;
}

std::span<const Transition> transitions() {
  return kTransitions;
}

bool may_go(RankState from, RankState to) {
  return from == to || std::ranges::find(kTransitions, Transition{from, to}) != std::end(kTransitions);
}

}  // namespace ckpt::coordinator::lifecycle
