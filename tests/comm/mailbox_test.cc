#include "lockstep/comm/mailbox.h"

#include <gtest/gtest.h>

#include <future>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// `give_up` may wait for the thread that puts messages into the mailbox.
TEST(Mailbox, MessagesArriveWhileItIsAskedWhetherToGiveUp) {
  Mailbox mailbox;
  std::future<void> put;
  const auto give_up = [&] {
    if (!put.valid()) put = std::async(std::launch::async, [&] { mailbox.put(1, 7, {.bytes = {std::byte{5}}}); });
    EXPECT_EQ(put.wait_for(2s), std::future_status::ready);
    return false;
  };
  const auto message = mailbox.take(1, 7, TimeLimit(20s), give_up);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->bytes, std::vector{std::byte{5}});
}

TEST(Mailbox, WhatCameBeforeTheSourceClosedIsStillThere) {
  Mailbox mailbox;
  mailbox.put(1, 7, {.bytes = {std::byte{5}}});
  mailbox.close(1);
  const auto never = [] { return false; };
  EXPECT_TRUE(mailbox.take(1, 7, TimeLimit(20s), never).has_value());
  EXPECT_FALSE(mailbox.take(1, 7, TimeLimit(20s), never).has_value());
}

}  // namespace
}  // namespace lockstep
