#include "lockstep/launch/failure_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "lockstep/launch/launch_environment.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/environment_variable.h"

namespace lockstep {
namespace {

constexpr const char* kReportsSecret = "0123456789abcdef";

class FailureReportsTest : public ::testing::Test {
 protected:
  // A report from a rank after its second restart.
  void report(int rank, const RankFailure& failure, int restart = 2, int given_rank = -1, int given_world_size = -1) {
    std::vector<std::unique_ptr<EnvironmentVariable>> variables;
    for (const auto& [name, value] : environment_of_rank({.rank = rank,
                                     .world_size = 4,
                                     .local_rank = rank,
                                     .local_world_size = 4,
                                     .master_addr = "127.0.0.1",
                                     .master_port = server_.port(),
                                     .secret = kReportsSecret,
                                     .restart_count = restart})) {
      names_.push_back(name);
      variables.push_back(std::make_unique<EnvironmentVariable>(names_.back().c_str(), value.c_str()));
    }
    const FailureReporter reporter = make_failure_reporter(given_rank, given_world_size);
    reporter(failure);
    reporter({3, "what follows from it"});
  }

  const TcpStoreServer server_{{.secret = kReportsSecret}};
  FailureReports reports_{{.port = server_.port(), .secret = kReportsSecret}, 2, 4};
  std::deque<std::string> names_;
};

TEST_F(FailureReportsTest, TheRankThatMostHaveLostIsTheCulprit) {
  reports_.read();
  EXPECT_FALSE(reports_.culprit().has_value());
  report(0, {1, "rank 1 lost (connection closed)"}, 1);  // of an earlier start
  report(1, {0, "rank 0 lost (connection closed)"});     // its own connections were cut
  report(2, {1, "rank 1 lost (no answer within 2 s)"});
  report(3, {1, "rank 1 lost (no answer within 2 s)"});
  reports_.read();
  ASSERT_TRUE(reports_.culprit().has_value());
  EXPECT_EQ(reports_.culprit()->culprit, 1);
  EXPECT_EQ(reports_.culprit()->reason, "rank 1 lost (no answer within 2 s)");
}

// Rank 1 is cut off after its report and before it counts itself.
TEST_F(FailureReportsTest, AReportThatIsNotCountedHidesNoOther) {
  TcpStore store({.port = server_.port(), .secret = kReportsSecret});
  store.set("failures/2/rank/1", "0 rank 0 lost (connection closed)");
  report(2, {1, "rank 1 lost (connection closed)"});
  reports_.read();
  report(0, {1, "rank 1 lost (connection closed)"});
  reports_.read();
  ASSERT_TRUE(reports_.culprit().has_value());
  EXPECT_EQ(reports_.culprit()->culprit, 1);
}

TEST_F(FailureReportsTest, ARankThatIsLostAndSaysNothingIsSilent) {
  report(1, {0, "rank 0 lost (connection closed)"});
  report(2, {1, "rank 1 lost (connection closed)"});
  reports_.read();
  EXPECT_TRUE(reports_.is_silent(0));
  EXPECT_FALSE(reports_.is_silent(1)) << "it speaks";
  EXPECT_FALSE(reports_.is_silent(3)) << "nobody has lost it";
}

TEST_F(FailureReportsTest, AFailureOfNobodyIsNotReported) {
  report(1, {-1, "ranks disagree"});
  reports_.read();
  EXPECT_EQ(reports_.culprit()->culprit, 3) << "what came after it";
}

TEST_F(FailureReportsTest, NumbersThatAreNotTheLaunchersNameNoneOfItsRanks) {
  report(2, {1, "rank 1 lost (connection closed)"}, 2, 0, 2);
  report(2, {1, "rank 1 lost (connection closed)"}, 2, 1, 4);
  reports_.read();
  EXPECT_FALSE(reports_.culprit().has_value());
  report(2, {1, "rank 1 lost (connection closed)"}, 2, 2, 4);
  reports_.read();
  EXPECT_EQ(reports_.culprit()->culprit, 1);
}

TEST(FailureReports, WithoutAStoreThereAreNone) {
  FailureReports reports({.port = 1}, 0, 2);
  reports.read();
  EXPECT_FALSE(reports.culprit().has_value());
}

}  // namespace
}  // namespace lockstep
