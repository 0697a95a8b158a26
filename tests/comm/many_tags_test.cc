// A program that uses each tag once.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>

#include "groups.h"

namespace lockstep {
namespace {

std::ptrdiff_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

TEST(ManyTags, LeaveNoQueuesBehind) {
  auto groups = make_local_groups(2);
  for (int tag = 0; tag < 500; ++tag) {
    std::int64_t sent = tag, received = -1;
    const Work receive = groups[1]->receive({&received, 1, DType::i64}, 0, tag);
    groups[0]->send({&sent, 1, DType::i64}, 1, tag).wait();
    receive.wait();
    EXPECT_EQ(received, tag);
  }
  EXPECT_LT(threads_of_process(), 300) << "one for each tag and direction would be 1000";
}

}  // namespace
}  // namespace lockstep
