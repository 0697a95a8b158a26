#include "lockstep/base/message_mac.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/hmac.h"
#include "tests/expect_error.h"
#include "tests/mutate.h"

namespace lockstep {
namespace {

const std::string kKey(32, 'k');

MessageMac::Tag tag_of(MessageMac& mac, std::string_view message) {
  mac.update(message.data(), message.size());
  return mac.finish();
}

std::string digits(const MessageMac::Tag& tag) {
  return hexadecimal({reinterpret_cast<const char*>(tag.data()), tag.size()});
}

// Test case 13 of the GCM specification: a key and a nonce of zeros.
TEST(MessageMac, IsGmac) {
  MessageMac mac(std::string(32, '\0'));
  EXPECT_EQ(digits(tag_of(mac, "")), "530f8afbc74536b9a963b4f1c4cb738b");
}

TEST(MessageMac, BothSidesAgreeHoweverTheBytesCome) {
  MessageMac whole(kKey), pieces(kKey);
  Dice dice(1);
  for (int round = 0; round < 200; ++round) {
    const std::string message(dice.below(3000), static_cast<char>(dice.byte()));
    const MessageMac::Tag tag = tag_of(whole, message);
    for (std::size_t at = 0; at < message.size();) {
      const std::size_t some = std::min(message.size() - at, dice.below(700) + 1);
      pieces.update(message.data() + at, some);
      at += some;
    }
    ASSERT_TRUE(pieces.finish_with(tag)) << round;
  }
}

TEST(MessageMac, NothingElseHasTheTag) {
  const std::vector<std::string> messages{"first", "second", "second", ""};
  std::vector<MessageMac::Tag> tags;
  MessageMac sender(kKey);
  for (const std::string& message : messages) tags.push_back(tag_of(sender, message));
  EXPECT_NE(tags[1], tags[2]) << "one that is repeated";
  const auto passes = [](MessageMac receiver, std::size_t earlier, std::string message, MessageMac::Tag tag) {
    for (std::size_t i = 0; i < earlier; ++i) tag_of(receiver, "whatever");
    receiver.update(message.data(), message.size());
    return receiver.finish_with(tag);
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    EXPECT_TRUE(passes(MessageMac(kKey), i, messages[i], tags[i]));
    EXPECT_FALSE(passes(MessageMac(std::string(32, 'l')), i, messages[i], tags[i])) << "another connection";
    EXPECT_FALSE(passes(MessageMac(kKey), i + 1, messages[i], tags[i])) << "one that was left out";
    EXPECT_FALSE(passes(MessageMac(kKey), i, messages[i] + '\0', tags[i])) << "one more byte";
    for (std::size_t bit = 0; bit < 8 * messages[i].size(); ++bit) {
      std::string changed = messages[i];
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
      EXPECT_FALSE(passes(MessageMac(kKey), i, changed, tags[i]));
    }
    for (std::size_t bit = 0; bit < 8 * MessageMac::kTagBytes; ++bit) {
      MessageMac::Tag changed = tags[i];
      changed[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      EXPECT_FALSE(passes(MessageMac(kKey), i, messages[i], changed));
    }
  }
}

TEST(MessageMac, NoneIsAnOption) {
  const MessageMac none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.tag_bytes(), 0u);
  EXPECT_EQ(MessageMac(kKey).tag_bytes(), 16u);
  EXPECT_ERROR(MessageMac("short"), "a key of 5 bytes, expected 32");
}

}  // namespace
}  // namespace lockstep
