// Ranks that are processes of mpirun, for the conformance suite. All of them run every test in the same order.
#include <numeric>

#include "lockstep/launch/launch_environment.h"
#include "tests/comm/groups.h"

namespace lockstep::testing {
namespace {

// MPI is started once. Tests use groups made from this one.
class World final : public ::testing::Environment {
 public:
  void SetUp() override { group_ = init_process_group({.backend = "mpi", .timeout = std::chrono::seconds(20)}); }
  void TearDown() override { destroy_process_group(group_); }
  ProcessGroup& group() { return *group_; }

 private:
  std::shared_ptr<ProcessGroup> group_;
};

World* world = nullptr;

}  // namespace

std::vector<ConformanceCase> conformance_cases() {
  const auto launched = read_launched_rank();
  return {{"mpi", launched ? launched->world_size : 1}};
}

std::vector<std::shared_ptr<ProcessGroup>> make_groups(const std::string&, int ranks, std::chrono::milliseconds,
                                                       std::chrono::milliseconds) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return {world->group().subgroup(all)};
}

}  // namespace lockstep::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  lockstep::testing::world = new lockstep::testing::World;
  ::testing::AddGlobalTestEnvironment(lockstep::testing::world);
  return RUN_ALL_TESTS();
}
