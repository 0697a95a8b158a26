// Two tasks that must run in order, through the installed library.
#include <fmt/core.h>
#include <lockstep/base/error.h>
#include <lockstep/engine/engine.h>

int main() {
  lockstep::Engine engine;
  const lockstep::LaneId lane = engine.add_lane({.name = "compute 0"});
  const lockstep::Resource data = engine.make_resource();
  int value = 0;
  engine.push({.name = "write", .lane = lane, .writes = {data}, .run = [&](const auto&) { value = 6; }});
  engine.push({.name = "scale", .lane = lane, .reads = {data}, .writes = {data}, .run = [&](const auto&) {
                 value *= 7;
               }});
  engine.wait_all();
  lockstep::check(value == 42, "value is {}, expected 42", value);
  fmt::print("value is {}\n", value);
}
