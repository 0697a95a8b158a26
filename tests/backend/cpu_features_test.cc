#include "lockstep/backend/cpu/cpu_features.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/cpu/onednn.h"
#include "lockstep/backend/cpu/onednn_plan.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

TEST(Simd, IsTheWidestUnlessTheSettingNamesLess) {
  EXPECT_EQ(choose_simd({}, Simd::avx512), Simd::avx512);
  EXPECT_EQ(choose_simd({}, Simd::scalar), Simd::scalar);
  EXPECT_EQ(choose_simd("avx2", Simd::avx512), Simd::avx2);
  EXPECT_EQ(choose_simd("scalar", Simd::avx2), Simd::scalar);
  EXPECT_EQ(choose_simd("avx512", Simd::avx512), Simd::avx512);
}

TEST(Simd, WrongSettingsAreErrors) {
  EXPECT_ERROR(choose_simd("avx512", Simd::avx2), "LOCKSTEP_SIMD is avx512, but this processor has avx2 at most");
  EXPECT_ERROR(choose_simd("mmx", Simd::avx512), "LOCKSTEP_SIMD is \"mmx\", expected scalar, avx2 or avx512");
  EXPECT_ERROR(choose_simd("", Simd::avx512), "LOCKSTEP_SIMD is \"\"");
}

// The environment is read once: each of these is a process of its own.
class SimdOfAProcess : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(SimdOfAProcess, LimitsOurLoopsAndOnednn) {
  EnvironmentVariable simd_limit("LOCKSTEP_SIMD", "scalar"), onednn_limit("ONEDNN_MAX_CPU_ISA", nullptr),
      old_onednn_limit("DNNL_MAX_CPU_ISA", nullptr);
  auto uses = [] {
    using namespace onednn;
    const bool native_bf16 = has_native_bf16();
    const Plan plan({.kind = Kind::conv_forward,
                     .operands = {Operand{.shape = {1, 16, 8, 8}}, Operand{.shape = {16, 16, 3, 3}}, Operand{},
                                  Operand{.shape = {1, 16, 6, 6}}}});
    std::fprintf(stderr, "simd %d, bf16 %d, %s\n", static_cast<int>(simd()), native_bf16, plan.implementation().c_str());
    std::exit(simd() == Simd::scalar && !native_bf16 && plan.implementation().find("avx") == std::string::npos ? 0 : 1);
  };
  EXPECT_EXIT(uses(), ::testing::ExitedWithCode(0), "");
}

TEST_F(SimdOfAProcess, WrongSettingIsAnErrorOfTheBackEnd) {
  EnvironmentVariable simd_limit("LOCKSTEP_SIMD", "mmx");
  auto make = [] {
    try {
      make_cpu_backend();
    } catch (const Error& e) {
      std::fprintf(stderr, "%s\n", e.what());
      std::exit(3);
    }
    std::exit(0);
  };
  EXPECT_EXIT(make(), ::testing::ExitedWithCode(3), "LOCKSTEP_SIMD is \"mmx\", expected scalar, avx2 or avx512");
}

}  // namespace
}  // namespace lockstep
