// Runs random programs on an engine, with lanes that have streams among them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>

#include "lockstep/engine/engine.h"
#include "tests/engine/fake_stream.h"
#include "tests/engine/random_program.h"

namespace lockstep::testing_engine {

Resources select(const std::vector<Resource>& resources, const std::vector<int>& indices);

// Workers that spin and workers that sleep at once, a host that runs ahead and one that is held back.
EngineOptions threaded_options(int seed);

// Which lanes have streams: lane i if bit i is set. How late they are depends on the seed.
struct Streams {
  unsigned lanes = 0;
  std::uint64_t seed = 0;
  bool vague = false;  // as in FakeStreamOptions
  std::shared_ptr<FakeStream> make(int lane) const;
};

// All kinds of mixtures.
Streams some_streams(int seed);

// A thread beside the program.
using Beside = std::function<std::jthread(Engine&)>;

// `settle`: waits for everything before the engine goes.
Trail run_on_engine(const Program& program, const EngineOptions& options, const Streams& streams = {},
                    bool settle = true, const Beside& beside = {});

// The answers that chance does not decide. A task that joins failed data settles the later failure if it is skipped,
// and does not if its stream learns of the failures only after it was queued.
std::vector<std::string> sure_answers(const Program& program, const Trail& trail, const Streams& streams);

void expect_same(const Program& program, const Trail& expected, const Trail& actual, const Streams& streams = {});

template <typename Run>
void for_each_seed(Run run, Program (*make)(std::uint64_t) = random_program) {
  for (int seed = 0; seed < seed_count(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run(make(seed), seed);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace lockstep::testing_engine
