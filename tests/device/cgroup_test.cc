#include "lockstep/device/cgroup.h"

#include <gtest/gtest.h>

#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

constexpr const char* kVersion2Mounts =
    "22 28 0:20 / /sys rw,nosuid - sysfs sysfs rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(Cgroup, NoGroupsSetNoLimits) {
  TemporaryFolder root;
  EXPECT_EQ(read_cgroup_limits(root.path()).cpus, std::nullopt);
  EXPECT_EQ(read_cgroup_limits(root.path()).memory_bytes, std::nullopt);
}

TEST(Cgroup, Version2TakesTheLowestLimitOfTheHierarchy) {
  TemporaryFolder root;
  root.write("proc/self/cgroup", "0::/slice/job/step\n");
  root.write("proc/self/mountinfo", kVersion2Mounts);
  root.write("sys/fs/cgroup/slice/cpu.max", "800000 100000\n");
  root.write("sys/fs/cgroup/slice/memory.max", "1000000\n");
  root.write("sys/fs/cgroup/slice/job/cpu.max", "250000 100000\n");
  root.write("sys/fs/cgroup/slice/job/memory.max", "2000000\n");
  root.write("sys/fs/cgroup/slice/job/step/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/slice/job/step/memory.max", "max\n");
  EXPECT_EQ(read_cgroup_limits(root.path()).cpus, 3);  // 2.5, rounded up
  EXPECT_EQ(read_cgroup_limits(root.path()).memory_bytes, 1000000u);
}

// Of the group with the lowest limit, and without the page cache.
TEST(Cgroup, TheMemoryThatTheGroupUses) {
  TemporaryFolder root;
  root.write("proc/self/cgroup", "0::/job/step\n");
  root.write("proc/self/mountinfo", kVersion2Mounts);
  root.write("sys/fs/cgroup/job/memory.max", "1000000\n");
  root.write("sys/fs/cgroup/job/memory.stat", "anon 300000\nfile 500000\nshmem 20000\nkernel 1\n");
  root.write("sys/fs/cgroup/job/step/memory.max", "2000000\n");
  root.write("sys/fs/cgroup/job/step/memory.stat", "anon 1\nshmem 1\n");
  EXPECT_EQ(read_cgroup_limits(root.path()).memory_used, 320000u);
  root.write("sys/fs/cgroup/job/memory.stat", "");
  EXPECT_EQ(read_cgroup_limits(root.path()).memory_used, std::nullopt);

  root.write("proc/self/cgroup", "4:memory:/a\n");
  root.write("proc/self/mountinfo", "42 40 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  root.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096\n");
  root.write("sys/fs/cgroup/memory/a/memory.stat", "rss 1\ntotal_rss 1024\ntotal_cache 9\ntotal_shmem 512\n");
  EXPECT_EQ(read_cgroup_limits(root.path()).memory_used, 1536u);
}

TEST(Cgroup, Version1ReadsEachControllersHierarchy) {
  TemporaryFolder root;
  root.write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/a\n1:cpu,cpuacct:/b\n0::/\n");
  root.write("proc/self/mountinfo",
             "41 40 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 - cgroup cgroup rw,cpu,cpuacct\n"
             "42 40 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
             "43 40 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_quota_us", "400000\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096\n");
  EXPECT_EQ(read_cgroup_limits(root.path()).cpus, 4);
  EXPECT_EQ(read_cgroup_limits(root.path()).memory_bytes, 4096u);

  root.write("sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(read_cgroup_limits(root.path()).cpus, std::nullopt);
}

TEST(Cgroup, ContainersSeeTheirGroupAsTheTop) {
  TemporaryFolder root;
  root.write("proc/self/cgroup", "1:cpu:/docker/1234\n");
  root.write("proc/self/mountinfo", "41 40 0:31 /docker/1234 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read_cgroup_limits(root.path()).cpus, 2);
  // A path from outside of the container's view.
  root.write("proc/self/cgroup", "1:cpu:/../other\n");
  EXPECT_EQ(read_cgroup_limits(root.path()).cpus, 2);
}

TEST(Cgroup, AQuotaBelowOneCpuIsOneCpu) {
  TemporaryFolder root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("proc/self/mountinfo", kVersion2Mounts);
  for (const char* quota : {"1000 100000", "0 100000", "100000 100000"}) {
    root.write("sys/fs/cgroup/cpu.max", quota);
    EXPECT_EQ(read_cgroup_limits(root.path()).cpus, 1) << quota;
  }
}

TEST(Cgroup, NonsenseSetsNoLimit) {
  TemporaryFolder root;
  root.write("proc/self/mountinfo", std::string("\n- - -\n1 2 3 4\n") + kVersion2Mounts);
  for (const char* group : {"", "0", "0:", "::", "0::", "0::/\n", "x:y:z"}) {
    root.write("proc/self/cgroup", group);
    for (const char* limit : {"", "max", "100000", "100000 0", "-5 100000", "x 100000", "1e5 100000", "1 2 3"}) {
      root.write("sys/fs/cgroup/cpu.max", limit);
      root.write("sys/fs/cgroup/memory.max", "lots");
      EXPECT_EQ(read_cgroup_limits(root.path()).cpus, std::nullopt) << group << " / " << limit;
      EXPECT_EQ(read_cgroup_limits(root.path()).memory_bytes, std::nullopt);
    }
  }
}

}  // namespace
}  // namespace lockstep
