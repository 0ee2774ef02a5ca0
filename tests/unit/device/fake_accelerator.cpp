// An accelerator without hardware, for torch's PrivateUse1: what it is given happens later, on threads of its own.
//
// A stream is a queue and the thread that works it off; an event is a count that such a thread raises. Copies read
// host memory by its address when their turn comes, so that a host that fills it anew too early is seen in the values.
// Device memory is given out again as soon as it is dropped, to the stream it was made on, unless it was recorded on
// other streams that still have work: as torch's allocator for CUDA does. Host memory that is not known to be
// page-locked is read before the call returns. Only copies are computed.

#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;
constexpr int kDevices = 2, kStreams = 64;

std::atomic<int64_t> host_copy_us{0}, device_copy_us{0};
std::atomic<int64_t> late_copies{0}, early_copies{0}, live_nbytes{0};
std::atomic<int> refuse_locks{0};

// ---- streams and events ------------------------------------------------------------------------------------------

class Queue {
 public:
  void give(std::function<void()> work) {
    std::lock_guard<std::mutex> hold(guard_);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void drain() {
    std::unique_lock<std::mutex> hold(guard_);
    changed_.wait(hold, [this] { return work_.empty() && !busy_; });
  }
  bool idle() {
    std::lock_guard<std::mutex> hold(guard_);
    return work_.empty() && !busy_;
  }

 private:
  void run() {
    std::unique_lock<std::mutex> hold(guard_);
    for (;;) {
      changed_.wait(hold, [this] { return !work_.empty(); });
      auto work = std::move(work_.front());
      work_.pop_front();
      busy_ = true;
      hold.unlock();
      work();
      work = nullptr;
      hold.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }
  std::mutex guard_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false;
  std::thread thread_;
};

// Never destroyed: their threads live as long as the process.
Queue& queue_of(const c10::Stream& stream) {
  static auto* queues = new Queue[kDevices * kStreams];
  return queues[stream.device_index() * kStreams + stream.id() % kStreams];
}

struct Event {
  std::mutex guard;
  std::condition_variable fired;
  uint64_t recorded = 0, reached = 0;
  void wait_for(uint64_t mark) {
    std::unique_lock<std::mutex> hold(guard);
    fired.wait(hold, [&] { return reached >= mark; });
  }
};
using EventRef = std::shared_ptr<Event>;

thread_local c10::DeviceIndex current_device = 0;
thread_local c10::StreamId current_streams[kDevices] = {};
std::atomic<c10::StreamId> next_stream{1};

c10::Stream stream_on(c10::DeviceIndex index) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, index), current_streams[index]);
}

void pause(int64_t micros) {
  if (micros > 0) std::this_thread::sleep_for(std::chrono::microseconds(micros));
}

// ---- page-locked host memory -------------------------------------------------------------------------------------

std::mutex locked_guard;
std::map<uintptr_t, size_t> locked;  // address -> bytes

bool is_locked(const void* data, size_t nbytes = 1) {
  std::lock_guard<std::mutex> hold(locked_guard);
  auto address = reinterpret_cast<uintptr_t>(data);
  auto after = locked.upper_bound(address);
  if (after == locked.begin()) return false;
  auto [start, size] = *std::prev(after);
  return address + nbytes <= start + size;
}

int lock_memory(uintptr_t address, size_t nbytes) {
  std::lock_guard<std::mutex> hold(locked_guard);
  if (refuse_locks.load()) return 2;
  auto after = locked.lower_bound(address);
  if (after != locked.end() && after->first < address + nbytes) return 712;
  if (after != locked.begin() && std::prev(after)->first + std::prev(after)->second > address) return 712;
  locked[address] = nbytes;
  return 0;
}

int unlock_memory(uintptr_t address) {
  std::lock_guard<std::mutex> hold(locked_guard);
  return locked.erase(address) ? 0 : 713;
}

// torch's own pinned memory; kept for ever, which is enough for tests.
struct HostAllocator final : at::HostAllocator {
  static void keep(void*) {}
  at::DataPtr allocate(size_t nbytes) override {
    void* data = std::malloc(nbytes + 64);
    std::lock_guard<std::mutex> hold(locked_guard);
    locked[reinterpret_cast<uintptr_t>(data)] = nbytes;
    return {data, data, &keep, at::DeviceType::CPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return &keep; }
  void copy_data(void* to, const void* from, size_t nbytes) const override { default_copy_data(to, from, nbytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};
HostAllocator host_allocator;

// ---- device memory -----------------------------------------------------------------------------------------------

struct Block {
  void* data;
  size_t nbytes;
  c10::Stream made_on;
  std::set<c10::Stream, bool (*)(const c10::Stream&, const c10::Stream&)> used_on{
      [](const c10::Stream& a, const c10::Stream& b) { return a.id() < b.id(); }};
  std::atomic<int> waits{0};
};

std::mutex blocks_guard;
std::unordered_map<void*, Block*> blocks;
std::multimap<std::tuple<int, int64_t, size_t>, Block*> free_blocks;

void give_back(Block* block) {
  std::lock_guard<std::mutex> hold(blocks_guard);
  block->used_on.clear();
  free_blocks.emplace(std::make_tuple(block->made_on.device_index(), block->made_on.id(), block->nbytes), block);
}

void drop(void* data) {
  Block* block;
  {
    std::lock_guard<std::mutex> hold(blocks_guard);
    block = blocks.at(data);
  }
  live_nbytes -= block->nbytes;
  if (block->used_on.empty()) return give_back(block);
  block->waits = static_cast<int>(block->used_on.size());
  auto streams = block->used_on;
  for (const auto& stream : streams)
    queue_of(stream).give([block] { if (--block->waits == 0) give_back(block); });
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t nbytes) override {
    auto device = c10::Device(kDevice, current_device);
    if (nbytes == 0) return {nullptr, nullptr, &nothing, device};
    auto stream = stream_on(current_device);
    std::lock_guard<std::mutex> hold(blocks_guard);
    auto found = free_blocks.find(std::make_tuple(current_device, stream.id(), nbytes));
    Block* block;
    if (found != free_blocks.end()) {
      block = found->second;
      free_blocks.erase(found);
    } else {
      block = new Block{std::malloc(nbytes), nbytes, stream};
      std::memset(block->data, 0xEE, nbytes);
      blocks[block->data] = block;
    }
    live_nbytes += nbytes;
    return {block->data, block->data, &drop, device};
  }
  static void nothing(void*) {}
  c10::DeleterFnPtr raw_deleter() const override { return &drop; }
  void copy_data(void* to, const void* from, size_t nbytes) const override { default_copy_data(to, from, nbytes); }
};
Allocator allocator;
REGISTER_ALLOCATOR(kDevice, &allocator);

void use_on(const c10::DataPtr& data, const c10::Stream& stream) {
  std::lock_guard<std::mutex> hold(blocks_guard);
  auto found = blocks.find(data.get());
  if (found != blocks.end() && !(found->second->made_on == stream)) found->second->used_on.insert(stream);
}

// ---- what torch asks of a device ---------------------------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kDevice, current_device}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < kDevices, "no such device");
    if (device.index() >= 0) current_device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = device.index(); }
  c10::Stream getStream(c10::Device device) const override { return stream_on(at(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, {kDevice, at(device)}, 0);
  }
  c10::Stream getNewStream(c10::Device device, int = 0) const override {
    return c10::Stream(c10::Stream::UNSAFE, {kDevice, at(device)}, 1 + next_stream++ % (kStreams - 1));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool = false) const override { return getNewStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto before = stream_on(stream.device_index());
    current_streams[stream.device_index()] = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new EventRef(std::make_shared<Event>());
    auto one = *static_cast<EventRef*>(*event);
    uint64_t mark;
    {
      std::lock_guard<std::mutex> hold(one->guard);
      mark = ++one->recorded;
    }
    queue_of(stream).give([one, mark] {
      std::lock_guard<std::mutex> hold(one->guard);
      one->reached = std::max(one->reached, mark);
      one->fired.notify_all();
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    auto one = *static_cast<EventRef*>(event);
    queue_of(stream).give([one, mark = marked(one)] { one->wait_for(mark); });
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    auto one = *static_cast<EventRef*>(event);
    std::lock_guard<std::mutex> hold(one->guard);
    return one->reached >= one->recorded;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    auto one = *static_cast<EventRef*>(event);
    one->wait_for(marked(one));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<EventRef*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override { return queue_of(stream).idle(); }
  void synchronizeStream(const c10::Stream& stream) const override { queue_of(stream).drain(); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    use_on(data, stream);
  }

 private:
  static c10::DeviceIndex at(c10::Device device) { return device.has_index() ? device.index() : current_device; }
  static uint64_t marked(const EventRef& event) {
    std::lock_guard<std::mutex> hold(event->guard);
    return event->recorded;
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  void setCurrentDevice(c10::DeviceIndex index) const override { current_device = index; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return std::exchange(current_device, index);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_device : exchangeDevice(index);
  }
  bool isPinnedPtr(const void* data) const override { return is_locked(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &host_allocator; }
};
Hooks hooks;

// ---- the operations ----------------------------------------------------------------------------------------------

at::Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<at::Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(device.value_or(c10::Device(kDevice, current_device)));
  return at::detail::empty_strided_generic(
      size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype.value_or(at::kFloat));
}

at::Tensor empty(
    c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(device.value_or(c10::Device(kDevice, current_device)));
  return at::detail::empty_generic(
      size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype.value_or(at::kFloat), format);
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  TORCH_CHECK(from.is_contiguous() && to.is_contiguous() && from.dtype() == to.dtype() && from.sizes() == to.sizes());
  auto device = from.is_privateuseone() ? from.device() : to.device();
  auto& queue = queue_of(stream_on(device.index()));
  const void* source = from.const_data_ptr();
  void* target = to.mutable_data_ptr();
  size_t nbytes = from.nbytes();
  bool inside = from.is_privateuseone() && to.is_privateuseone();
  bool late = inside || (non_blocking && is_locked(from.is_privateuseone() ? target : source, nbytes));
  // Addresses alone: nothing of the tensors is kept by the device.
  queue.give([=] {
    pause(inside ? device_copy_us.load() : host_copy_us.load());
    std::memcpy(target, source, nbytes);
  });
  if (!late) queue.drain();
  if (!inside && to.is_privateuseone()) ++(late ? late_copies : early_copies);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) { return copy_from(from, to, false); }

void record_stream(at::Tensor& tensor, c10::Stream stream) { use_on(tensor.storage().data_ptr(), stream); }

at::Tensor as_strided(
    const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<int64_t> offset) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(), self.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset.value_or(self.storage_offset()));
  return view;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &as_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("record_stream", &record_stream);
}

}  // namespace

// ---- for the tests, through ctypes -------------------------------------------------------------------------------

extern "C" {
void fake_install() {
  at::RegisterPrivateUse1HooksInterface(&hooks);
  at::setHostAllocator(kDevice, &host_allocator);
}
int fake_lock(uintptr_t address, size_t nbytes) { return lock_memory(address, nbytes); }
int fake_unlock(uintptr_t address) { return unlock_memory(address); }
void fake_refuse_locks(int refuses) { refuse_locks = refuses; }
void fake_delays(int64_t host_us, int64_t device_us) { host_copy_us = host_us, device_copy_us = device_us; }
int64_t fake_late_copies() { return late_copies; }
int64_t fake_early_copies() { return early_copies; }
int64_t fake_live_nbytes() { return live_nbytes; }
int64_t fake_locked_count() {
  std::lock_guard<std::mutex> hold(locked_guard);
  return static_cast<int64_t>(locked.size());
}
}
