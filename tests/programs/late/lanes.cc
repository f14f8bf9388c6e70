// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/programs/late/lane.h"
#include "tests/programs/stress/content.h"
#include "tests/programs/stress/streams.h"

namespace ckpt::examples {
namespace {

constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kStepsBetweenChecks = 24;
constexpr unsigned kThreads = 64;
// A place of a copy has more words than a place of an addition, so each of its words gets less work.
constexpr std::uint64_t kFillShare = 16;

// Returns the word that the host leaves in a checked place. No version of a kernel contains this word.
std::uint64_t still_word(std::uint64_t seed, std::uint64_t number, std::uint64_t i) {
  return ~content_word(seed, static_cast<std::uint32_t>(number), i);
}

CUevent make_event() {
  CUevent event = nullptr;
  check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  return event;
}

}  // namespace

void LateTally::add(const LateTally& other) {
  steps += other.steps;
  checks += other.checks;
  for (std::size_t i = 0; i < errors.size(); ++i) errors[i] += other.errors[i];
}

Lane::Lane(const LatePlan& plan, HostKind kind, std::uint64_t host_bytes, const char* kernel)
    : plan_(plan),
      host_(kind, host_bytes + kWordBytes),
      kernels_("late_kernels"),
      kernel_(kernels_[kernel]),
      touched_(host_.words() + host_bytes / kWordBytes) {
  check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

Lane::~Lane() {
  cuStreamDestroy(stream_);
}

unsigned Lane::touch() {
  const unsigned wrong = *touched_ == touches_ ? 0 : 1;
  *touched_ = ++touches_;
  return wrong;
}

LateTally Lane::run(const std::atomic<bool>& stop) {
  while (!stop) {
    step(++tally_.steps);
    if (tally_.steps % kStepsBetweenChecks == 0) {
      check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
      check_all();
      tally_.count(Late::kAnswer, host_.wrong_answers());
      host_.register_again();
    }
    if (plan_.print_every != 0 && tally_.steps % plan_.print_every == 0) {
      std::printf("step %llu\n", static_cast<unsigned long long>(tally_.steps));
      std::fflush(stdout);
    }
  }
  check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
  check_all();
  return tally_;
}

AddLane::AddLane(const LatePlan& plan, HostKind kind)
    : Lane(plan, kind, kWords * kWordBytes, "add_slowly"), witness_(kWords * kWordBytes) {
  check(cuMemsetD8Async(witness_.get(), 0, kWords * kWordBytes, stream_), "cuMemsetD8Async");
  for (CUevent& event : ended_) event = make_event();
}

AddLane::~AddLane() {
  for (CUevent event : ended_) cuEventDestroy(event);
}

void AddLane::step(std::uint64_t number) {
  CUevent event = ended_[number % kUnderWay];
  if (number > kUnderWay) check(cuEventSynchronize(event), "cuEventSynchronize");
  launch_on(stream_, kernel_, 1, kThreads, host_.device_pointer(), witness_.get(), kWords, plan_.rounds);
  check(cuEventRecord(event, stream_), "cuEventRecord");
  ++launches_;
}

void AddLane::check_all() {
  // This line simulates a lost write.
  if (plan_.break_at != 0 && tally_.steps >= plan_.break_at) --host_.words()[kWords / 2];
  std::vector<std::uint64_t> witness(kWords);
  download(witness.data(), witness_.get(), kWords * kWordBytes);
  const std::uint64_t expected = launches_ * plan_.rounds;
  const auto wrong = [expected](std::uint64_t word) { return word != expected; };
  tally_.count(Late::kWord,
               static_cast<std::uint64_t>(std::count_if(host_.words(), host_.words() + kWords, wrong)));
  tally_.count(Late::kWitness,
               static_cast<std::uint64_t>(std::count_if(witness.begin(), witness.end(), wrong)));
  ++tally_.checks;
}

CopyLane::CopyLane(const LatePlan& plan, HostKind kind)
    : Lane(plan, kind, kPlaces * kWords * kWordBytes, "fill_slowly"), made_(kWords * kWordBytes) {
  for (CUevent& event : landed_) event = make_event();
}

CopyLane::~CopyLane() {
  for (CUevent event : landed_) cuEventDestroy(event);
}

void CopyLane::step(std::uint64_t number) {
  if (number > kPlaces) {  // no write may have arrived since the last check
    const std::uint64_t* still = place(number);
    std::uint64_t moved = 0;
    for (std::uint64_t i = 0; i < kWords; ++i)
      moved += still[i] == still_word(plan_.seed, number - kPlaces, i) ? 0 : 1;
    tally_.count(Late::kStill, moved);
  }
  launch_on(stream_, kernel_, 1, kThreads, made_.get(), kWords, plan_.seed,
            static_cast<std::uint32_t>(number), plan_.rounds / kFillShare);
  check(cuMemcpyDtoHAsync(place(number), made_.get(), kWords * kWordBytes, stream_), "cuMemcpyDtoHAsync");
  check(cuEventRecord(landed_[number % kPlaces], stream_), "cuEventRecord");
  submitted_ = number;
  if (number > kUnderWay) settle(number - kUnderWay);
}

// Checks a copy that must have arrived by now, and replaces its content.
void CopyLane::settle(std::uint64_t number) {
  if (number <= settled_) return;
  check(cuEventSynchronize(landed_[number % kPlaces]), "cuEventSynchronize");
  std::uint64_t* words = place(number);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kWords; ++i) {
    wrong += words[i] == content_word(plan_.seed, static_cast<std::uint32_t>(number), i) ? 0 : 1;
    words[i] = still_word(plan_.seed, number, i);
  }
  tally_.count(Late::kContent, wrong);
  ++tally_.checks;
  settled_ = number;
}

void CopyLane::check_all() {
  for (std::uint64_t number = settled_ + 1; number <= submitted_; ++number) settle(number);
  if (plan_.break_at == 0 || tally_.steps < plan_.break_at) return;
  // This copy simulates a write that arrives twice.
  check(cuMemcpyDtoH(place(settled_), made_.get(), kWords * kWordBytes), "cuMemcpyDtoH");
}

}  // namespace ckpt::examples
