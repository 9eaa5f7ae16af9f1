// Device memory: host memory behind a caching allocator with a limit. And pinned host memory.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstdlib>
#include <map>
#include <unordered_set>

#include "streams.h"

namespace simulated {

class DeviceMemory final : public c10::DeviceAllocator {
  using Stats = c10::CachingDeviceAllocator::DeviceStats;
  using Stat = c10::CachingAllocator::Stat;

 public:
  static DeviceMemory& get() {
    static auto* memory = new DeviceMemory;  // never freed: tensors may outlive static destruction
    return *memory;
  }

  c10::DataPtr allocate(size_t asked) override { return allocate_on(selected_device, asked); }
  c10::DataPtr allocate_on(DeviceIndex device, size_t asked) {
    if (!asked) return {nullptr, nullptr, &free_nothing, Device(kType, device)};
    check_allocation(device, asked);
    std::lock_guard<std::mutex> lock(mutex_);
    auto& pool = pools_[device];
    auto* block = take(pool, device, (asked + kBlock - 1) / kBlock * kBlock);
    block->asked = asked;
    races::made(block->address(), &current_queue(device));
    count(pool.stats, block->size, asked, +1);
    return {block->address(), block->address(), &free_block, Device(kType, device)};
  }
  // Is `data` memory of this device, whatever it calls itself?
  static bool is_of(const c10::DataPtr& data, DeviceIndex device) {
    return data.get_deleter() == &free_block && block_of(data.get_context())->device == device;
  }
  // Free `address` if it is a device's.
  bool free_own(void* address) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!segments_.count(address)) return false;
    }
    free_block(address);
    return true;
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memmove(to, from, bytes); }
  bool initialized() override { return true; }

  void emptyCache(c10::MempoolId_t) override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (int device = 0; device < device_count; ++device) drop_cache(pools_[device]);
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get_deleter() == &free_block) block_of(data.get_context())->used_on.push_back(stream);
  }

  Stats getDeviceStats(DeviceIndex device) override {
    check_index(device);
    std::lock_guard<std::mutex> lock(mutex_);
    return pools_[device].stats;
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    each_stat(device, [](Stat& stat) { stat.reset_accumulated(); });
  }
  void resetPeakStats(DeviceIndex device) override {
    each_stat(device, [](Stat& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    check_index(device);
    std::lock_guard<std::mutex> lock(mutex_);
    size_t limit = memory_limits[device], held = reserved(pools_[device]);
    return {limit - std::min(limit, held), limit};
  }

  void set_fraction(DeviceIndex device, double fraction) {
    check_index(device);
    std::lock_guard<std::mutex> lock(mutex_);
    pools_[device].fraction = fraction;
  }

 private:
  static constexpr size_t kBlock = 512;
  struct Block;
  using Cache = std::multimap<size_t, Block*>;
  struct Pool {
    Cache cache;
    Stats stats;
    double fraction = 1;
  };
  // Stands before its memory, which it is made and kept with: to be handed out again costs no allocation.
  struct Block {
    void* address() { return reinterpret_cast<char*>(this) + kBlock; }
    size_t size, asked;
    DeviceIndex device;
    std::vector<c10::Stream> used_on;
    Cache::node_type place;  // in the cache, while it is handed out
  };

  static size_t reserved(const Pool& pool) { return size_t(pool.stats.reserved_bytes[0].current); }

  // A block of at least `size` bytes: from the cache, else new.
  Block* take(Pool& pool, DeviceIndex device, size_t size) {
    auto cached = pool.cache.lower_bound(size);
    if (cached != pool.cache.end() && cached->first <= 2 * size) {
      auto* block = cached->second;
      block->place = pool.cache.extract(cached);
      return block;
    }
    make_room(pool, device, size);
    static_assert(sizeof(Block) <= kBlock);
    void* place = nullptr;
    TORCH_CHECK(!posix_memalign(&place, kBlock, kBlock + size), "the host is out of memory");
    pool.stats.reserved_bytes[0].increase(size);
    pool.stats.segment[0].increase(1);
    auto* block = new (place) Block{size, 0, device, {}, {}};
    segments_.insert(block->address());
    return block;
  }

  void make_room(Pool& pool, DeviceIndex device, size_t size) {
    auto limit = size_t(double(memory_limits[device]) * pool.fraction);
    if (reserved(pool) + size <= limit) return;
    drop_cache(pool);
    pool.stats.num_alloc_retries++;
    if (reserved(pool) + size <= limit) return;
    pool.stats.num_ooms++;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "simulated device ", int(device), " out of memory: tried to allocate ", size,
        " bytes, ", pool.stats.allocated_bytes[0].current, " of ", limit, " are in use. ACCEL_SIMULATE_MEMORY_MB=",
        memory_limits[device] >> 20, " is what it has: more for a test that needs more");
  }

  void drop_cache(Pool& pool) {
    for (auto& [size, block] : pool.cache) {
      segments_.erase(block->address());
      races::forget(block->address());
      block->~Block();
      std::free(block);
      pool.stats.reserved_bytes[0].decrease(size);
      pool.stats.segment[0].decrease(1);
    }
    pool.cache.clear();
  }

  static void count(Stats& stats, size_t size, size_t asked, int sign) {
    auto change = [sign](Stat& stat, size_t by) { sign > 0 ? stat.increase(by) : stat.decrease(by); };
    for (auto* bytes : {&stats.allocated_bytes, &stats.active_bytes}) change((*bytes)[0], size);
    for (auto* blocks : {&stats.allocation, &stats.active}) change((*blocks)[0], 1);
    change(stats.requested_bytes[0], asked);
  }

  static void free_nothing(void*) {}
  static Block* block_of(void* address) {
    return reinterpret_cast<Block*>(static_cast<char*>(address) - kBlock);
  }
  static void free_block(void* address) {
    auto* block = block_of(address);
    if (!is_stream_thread)  // there the work that held it last is done, and work in a queue owns what it uses
      for (auto& stream : block->used_on) queue(stream).drain();
    if (!block->used_on.empty()) races::forget(address);
    block->used_on.clear();
    get().give_back(block);
  }
  void give_back(Block* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& pool = pools_[block->device];
    count(pool.stats, block->size, block->asked, -1);
    auto first = pool.cache.lower_bound(block->size);  // the last that was given back is in the CPU's caches
    if (block->place.empty()) pool.cache.emplace_hint(first, block->size, block);
    else pool.cache.insert(first, std::move(block->place));
  }

  template <class F>
  void each_stat(DeviceIndex device, F change) {
    check_index(device);
    std::lock_guard<std::mutex> lock(mutex_);
    auto& stats = pools_[device].stats;
    for (auto* stat : {&stats.allocation, &stats.segment, &stats.active, &stats.allocated_bytes, &stats.reserved_bytes,
             &stats.active_bytes, &stats.requested_bytes})
      change((*stat)[0]);
  }

  std::mutex mutex_;
  Pool pools_[kMaxDevices];
  std::unordered_set<void*> segments_;
};

// The same memory behind an allocator that torch.accelerator can ask nothing, as Metal's was (pytorch#186748).
class UncountedMemory final : public c10::Allocator {
 public:
  static UncountedMemory& get() {
    static auto* memory = new UncountedMemory;
    return *memory;
  }
  c10::DataPtr allocate(size_t size) override { return DeviceMemory::get().allocate(size); }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memmove(to, from, bytes); }
};

inline c10::Allocator& device_memory() {
  if (old_metal) return UncountedMemory::get();
  return DeviceMemory::get();
}

// The host's allocator, which gives a device's memory to a thread that runs a kernel: CPU's kernels then make
// their results, and what they need meanwhile, where a device's kernels would, and nothing is copied.
class HostMemory final : public c10::Allocator {
 public:
  // While it lives, what this thread allocates on the host is of `device`.
  class Lend {
   public:
    explicit Lend(DeviceIndex device) : before_(std::exchange(lends_, device)) {}
    ~Lend() { lends_ = before_; }
    Lend(const Lend&) = delete;
    Lend& operator=(const Lend&) = delete;

   private:
    DeviceIndex before_;
  };

  static void install() {
    auto* ordinary = c10::GetAllocator(c10::kCPU);
    if (!dynamic_cast<HostMemory*>(ordinary)) c10::SetAllocator(c10::kCPU, new HostMemory(ordinary));
  }

  c10::DataPtr allocate(size_t size) override {
    if (lends_ < 0 || !size) return ordinary_->allocate(size);
    auto data = DeviceMemory::get().allocate_on(lends_, size);
    data.unsafe_set_device(Device(c10::kCPU));
    return data;
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return ordinary_->is_simple_data_ptr(data); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_raw; }
  void copy_data(void* to, const void* from, size_t bytes) const override { ordinary_->copy_data(to, from, bytes); }

 private:
  explicit HostMemory(c10::Allocator* ordinary) { ordinary_ = ordinary; }
  // oneDNN asks for bare addresses, and gives them back when it likes.
  static void free_raw(void* address) {
    if (!DeviceMemory::get().free_own(address)) ordinary_->raw_deallocate(address);
  }
  inline static thread_local DeviceIndex lends_ = -1;
  inline static c10::Allocator* ordinary_ = nullptr;
};

// Pinned host memory: ordinary memory of which we remember the addresses. For Metal torch's allocator gives
// what is on the device, in 2.13 too (pytorch#86060, #181374).
class PinnedMemory final : public at::HostAllocator {
 public:
  static PinnedMemory& get() {
    static auto* memory = new PinnedMemory;
    return *memory;
  }

  c10::DataPtr allocate(size_t size) override {
    void* address = nullptr;
    if (size) {
      TORCH_CHECK(!posix_memalign(&address, 64, size), "the host is out of memory");
      std::lock_guard<std::mutex> lock(mutex_);
      live_[static_cast<char*>(address)] = size;
    }
    return {address, address, &release, kIsMps ? Device(kType, 0) : Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }  // queued copies own what they read
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  // Memory of the program's own that it has pinned.
  void lock(void* address, size_t size) {
    std::lock_guard<std::mutex> lock(mutex_);
    live_[static_cast<char*>(address)] = size;
  }
  void unlock(void* address) {
    std::lock_guard<std::mutex> lock(mutex_);
    live_.erase(static_cast<char*>(address));
  }

  bool holds(const void* pointer) {
    auto* address = static_cast<char*>(const_cast<void*>(pointer));
    std::lock_guard<std::mutex> lock(mutex_);
    auto after = live_.upper_bound(address);
    return after != live_.begin() && (--after, address < after->first + after->second);
  }

 private:
  static void release(void* address) {
    {
      std::lock_guard<std::mutex> lock(get().mutex_);
      get().live_.erase(static_cast<char*>(address));
    }
    std::free(address);
  }
  std::mutex mutex_;
  std::map<char*, size_t> live_;
};

// Give `storage` `size` bytes, keeping what it holds.
inline void grow(const c10::Storage& storage, size_t size) {
  c10::DeviceGuard guard(storage.device());
  auto data = DeviceMemory::get().allocate(size);
  if (storage.data()) std::memcpy(data.get(), storage.data(), std::min(size, storage.nbytes()));
  auto& writable = const_cast<c10::Storage&>(storage);
  writable.set_data_ptr_noswap(std::move(data));
  writable.set_nbytes(size);
}

}  // namespace simulated
