#include "lockstep/runtime/timeline.h"

#include <gtest/gtest.h>

#include "lockstep/engine/engine.h"
#include "lockstep/runtime/device_state.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

void push(Runtime& runtime, const char* name) {
  Task task{.name = name, .lane = state_of(runtime.devices()[0], "test").compute_lanes[0]};
  task.writes.push_back(runtime.engine().make_resource());
  task.run = [](const TaskContext&) {};
  runtime.engine().push(std::move(task));
}

TEST(Timeline, HasTheTasksOfItsLifetime) {
  TemporaryFolder folder;
  Runtime runtime({.devices = 1});
  push(runtime, "before");
  runtime.synchronize();
  {
    Timeline timeline(runtime);
    push(runtime, "inside");
    timeline.write(folder / "t.json");  // waits for the task
    EXPECT_ERROR(Timeline{runtime}, "timeline: this Runtime records another one, expected one at a time");
    EXPECT_ERROR(timeline.write(folder / "none/t.json"), "none/t.json: No such file or directory");
  }
  push(runtime, "after");
  runtime.synchronize();
  const std::string text = folder.read("t.json");
  EXPECT_NE(text.find("\"inside\""), text.npos) << text;
  EXPECT_EQ(text.find("\"before\""), text.npos);
  EXPECT_EQ(text.find("\"after\""), text.npos);
  EXPECT_FALSE(runtime.engine().tracing());
}

}  // namespace
}  // namespace lockstep
