// Internal: tags that authenticate messages (AES-256-GMAC).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

struct evp_cipher_ctx_st;

namespace lockstep {

// The messages of one direction of a connection, in their order. A message's number is part of its tag: one that was
// changed, left out, repeated, or moved has another tag, as has one of another connection, whose key is another.
class MessageMac {
 public:
  static constexpr std::size_t kKeyBytes = 32, kTagBytes = 16;
  using Tag = std::array<std::byte, kTagBytes>;

  // Makes no tags.
  MessageMac();
  // Each side has one of the same key. No other messages, and not those of the other direction, have this key.
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
  // Ends the current message. Takes the same time whatever the tag is.
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
