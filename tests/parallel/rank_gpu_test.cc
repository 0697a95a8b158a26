#include "lockstep/parallel/rank_gpu.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/expect_error.h"

namespace lockstep {
namespace {

RankGpu gpu(std::string_view backend, std::string_view uuid, std::int32_t nccl, bool may_share = false) {
  RankGpu g;
  backend.copy(g.backend, sizeof g.backend - 1);
  uuid.copy(g.uuid, sizeof g.uuid - 1);
  g.nccl = nccl;
  g.may_share = may_share;
  return g;
}

TEST(RankGpu, NcclNeedsOneGpuForEachRank) {
  const RankGpu a = gpu("auto", "aa", 22809), b = gpu("auto", "bb", 22809), none = gpu("auto", "", 0);
  EXPECT_EQ(why_not_nccl(std::array{a, b}), "");
  EXPECT_EQ(why_not_nccl(std::array{a}), "there is one rank");
  EXPECT_EQ(why_not_nccl(std::array{a, none, b}), "rank 1 has no GPU");
  EXPECT_EQ(why_not_nccl(std::array{a, b, a}), "ranks 0 and 2 have the same GPU");
  const RankGpu shared = gpu("auto", "aa", 22809, true);
  EXPECT_EQ(why_not_nccl(std::array{shared, shared}), "");
  EXPECT_EQ(why_not_nccl(std::array{a, gpu("auto", "bb", 0)}), "rank 1 has no NCCL");
  EXPECT_EQ(why_not_nccl(std::array{a, gpu("auto", "bb", 22703)}), "rank 0 has NCCL 2.28.9, rank 1 2.27.3");
}

TEST(RankGpu, RanksAskForOneBackEnd) {
  EXPECT_EQ(why_not_nccl(std::array{gpu("host", "", 0), gpu("host", "", 0)}), "the backend is host");
  EXPECT_ERROR(why_not_nccl(std::array{gpu("nccl", "aa", 22809), gpu("host", "", 0)}),
               "rank 0 requested backend nccl, rank 1 requested host: all ranks need the same");
}

}  // namespace
}  // namespace lockstep
