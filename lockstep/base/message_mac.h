// Internal: tags that authenticate messages (AES-256-GMAC).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

struct evp_cipher_ctx_st;

namespace lockstep {

// Tags the messages of one direction of a connection, in order. A tag depends on the key and the index of the message:
// a message that was changed, dropped, repeated, moved, or sent on another connection has a wrong tag.
class MessageMac {
 public:
  static constexpr std::size_t kKeyBytes = 32, kTagBytes = 16;
  using Tag = std::array<std::byte, kTagBytes>;

  // Without a key, there are no tags.
  MessageMac();
  // Both sides use the same key. The key is used for these messages only, and not for the other direction.
  explicit MessageMac(std::string_view key);
  MessageMac(MessageMac&&) noexcept;
  MessageMac& operator=(MessageMac&&) noexcept;
  ~MessageMac();

  explicit operator bool() const { return context_ != nullptr; }
  std::size_t tag_bytes() const { return context_ ? kTagBytes : 0; }

  // Takes the next bytes of the current message.
  void update(const void* data, std::size_t bytes);
  // Ends the current message.
  Tag finish();
  // Ends the current message. Returns whether `tag` is its tag, in a time that does not depend on `tag`.
  bool finish_with(const Tag& tag);

 private:
  void begin();

  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
  std::uint64_t messages_ = 0;
  bool begun_ = false;
};

}  // namespace lockstep
