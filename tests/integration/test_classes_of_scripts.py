"""Classes and functions of a script are in its workers what they are in the script: bases, locks, enums, parts of
packages; in processes that multiprocessing has spawned too. And what their batches hold comes back as the script's own.
"""

from __future__ import annotations

import pytest

from tests.slow import slow
from tests.watching import run_warm

#: Each check runs here and in a worker, and must say the same in both.
EVERYTHING = """
import collections, dataclasses, enum, functools, io, logging, sys, threading, typing, weakref
import PIL.Image
import urllib.request
import xml.etree.ElementTree
import numpy as np
import torch
from torch.utils.data import Dataset, Subset, TensorDataset
from swift_loader import SwiftLoader

class Base(Dataset):
    epoch = None
    def __init__(self, **held): self.__dict__.update(held)
    def __len__(self): return len(CHECKS)
    def __getitem__(self, index): return CHECKS[index].__name__, CHECKS[index](self)
    def __getitems__(self, indices): return [(self.epoch, self[index]) for index in indices]
    def set_epoch(self, epoch): self.epoch = epoch

class Checks(Base): pass

CHECKS = []

@CHECKS.append
def own_base(self): return isinstance(self, Dataset), [kind.__name__ for kind in type(self).__mro__]

class Rows(TensorDataset):
    def __getitem__(self, index): return super().__getitem__(index)[0] + 1  # super() knows the class by a cell
class Part(Subset):
    pass
@CHECKS.append
def torch_bases(self): return Rows(torch.arange(3))[1].item(), Part(Rows(torch.arange(9)), [4, 5])[1].item()

class Named:
    @property
    def name(self): return type(self).__qualname__
class Mixed(Named, Base):
    class Inner(Named): pass
@CHECKS.append
def mixins_and_nested_classes(self): return Mixed().name, Mixed.Inner().name, Mixed().epoch

T = typing.TypeVar("T")
Id = typing.NewType("Id", int)
P = typing.ParamSpec("P")
class Holds(typing.Generic[T]):
    def __init__(self, held: T): self.held = held
class HoldsIds(Holds[Id]):
    def get(self, *args: P.args) -> Id: return Id(self.held)
class OfInts(Dataset[int]): pass
@CHECKS.append
def generics(self): return HoldsIds(3).get(), Holds[T](4).held, issubclass(OfInts, Dataset), OfInts.__orig_bases__

@dataclasses.dataclass
class Settings(Base):
    size: int = 3
    names: list = dataclasses.field(default_factory=list)
@dataclasses.dataclass(frozen=True, slots=True)
class More:
    size: int
class Derived(Settings): pass
@CHECKS.append
def dataclasses_with_bases(self):
    fields = [field.default is dataclasses.MISSING for field in dataclasses.fields(Derived)]
    return Derived(5), Derived().names, dataclasses.replace(More(1), size=4), fields

def make(name):
    class Made(Base):
        def __init__(self): super().__init__(name=name)
    return Made
Made = make("made")
@CHECKS.append
def made_by_a_function(self): return Made().name, isinstance(Made(), Dataset)

class Split(enum.Enum): TRAIN = "train"; VAL = "val"; LEARN = "train"
class Number(enum.IntEnum): ONE = enum.auto()
class Word(enum.StrEnum): A = enum.auto()
class Text(str, enum.Enum): A = "a"
class Rights(enum.Flag):
    R = enum.auto()
    W = enum.auto()
    BOTH = R | W
class Planet(enum.Enum):
    EARTH = (5.97, 6.37)
    def __init__(self, mass, radius): self.mass = mass
    @property
    def heavy(self): return self.mass > 5
@CHECKS.append
def enums(self):
    assert Split("train") is Split.TRAIN and Split.LEARN is Split.TRAIN and Rights.R | Rights.W is Rights.BOTH
    return {"split": Split.TRAIN, "number": Number.ONE, "word": Word.A, "text": Text.A, "rights": Rights.BOTH,
            "planet": Planet.EARTH, "heavy": Planet.EARTH.heavy, "mass": Planet.EARTH.mass, "all": list(Split)}

def even(i): return i == 0 or odd(i - 1)
def odd(i): return i != 0 and even(i - 1)
@functools.lru_cache(maxsize=100)
def fib(i): return i if i < 2 else fib(i - 1) + fib(i - 2)
@functools.singledispatch
def kind(x): return "any"
@kind.register
def _(x: int): return "int"
@CHECKS.append
def functions_that_know_each_other(self): return even(8), fib(50), fib.cache_parameters(), kind(1), kind("")

Pair = collections.namedtuple("Pair", "a b")
class Typed(typing.NamedTuple):
    a: int = 1
@CHECKS.append
def namedtuples(self): return Pair(1, Typed()), Pair._fields

@CHECKS.append
def parts_of_packages(self):
    sizes = [PIL.Image.new("L", (size, 2)).size for size in (1, 2)]
    text = (lambda: xml.etree.ElementTree.fromstring("<a><b/></a>")[0].tag)()
    return sizes, text, urllib.request.Request("http://a").host

class Cached:
    @functools.cached_property
    def table(self): return [1, 2]
    @functools.lru_cache
    def twice(self, x): return 2 * x
@CHECKS.append
def caches(self): return Cached().table, Cached().twice(4), self.cached.table

@CHECKS.append
def locks(self):
    for lock in (self.lock, self.rlock, self.condition, self.handler.lock, self.semaphore, self.made.lock):
        assert lock.acquire(timeout=5), lock
        lock.release()
    with self.condition: self.condition.notify_all()
    return self.event.is_set(), self.semaphore._value, self.queue.qsize()

@CHECKS.append
def handlers(self):
    self.handler.handle(logging.makeLogRecord({"msg": "said"}))
    return type(self.handler), self.handler.stream is sys.stdout

@CHECKS.append
def files(self):
    text, raw = self.text.tell(), self.bytes.tell()
    read = self.text.readline(), self.bytes.read(3), self.written.write("")
    self.text.seek(text); self.bytes.seek(raw)
    return text, raw, read, self.closed.closed, self.text.name.rpartition("/")[2]

@CHECKS.append
def weak_references(self): return self.weak() is self.cached, list(self.weakly.values()) == [self.cached]

@CHECKS.append
def empty_arrays(self): return [box.shape for box in self.boxes], self.boxes[0].dtype

import queue
with open("data.txt", "w") as closed: closed.write("one\\ntwo\\nthree\\n")
text, raw = open("data.txt"), open("data.txt", "rb")
text.readline(); raw.seek(1)
written = open("written.txt", "w")
written.write("kept")

def held():
    cached, made = Cached(), Made()
    made.lock = threading.RLock()
    rlock = threading.RLock()
    waiting = queue.Queue(); waiting.put("text")
    event = threading.Event(); event.set()
    return dict(
        cached=cached, made=made, weak=weakref.ref(cached), weakly=weakref.WeakValueDictionary(a=cached),
        lock=threading.Lock(), rlock=rlock, condition=threading.Condition(rlock), event=event, queue=waiting,
        semaphore=threading.Semaphore(3), handler=logging.StreamHandler(sys.stdout), text=text, bytes=raw,
        closed=closed, written=written,
        boxes=[np.zeros((0, 4), np.float32), np.ones((2, 4), np.float32), np.zeros((3, 0), "i4")],
    )

def as_they_are(samples): return samples

given = held()
here = Checks(**given)
here.set_epoch(0)
for begin, how in ((lambda **more: SwiftLoader(Checks, given, 8, 1, 1, **more), "forkserver"),
                   (lambda **more: SwiftLoader.from_dataset(here, 8, 1, 1, **more), "spawn")):
    with begin(shuffle=False, collate_fn=as_they_are, start_method=how) as loader:
        with given["lock"], given["rlock"]:  # they arrive open
            loader.start(0)
        there = [sample for batch in loader for sample in batch]
    for index, sample in enumerate(there):
        expected = (0, here[index])
        if sample != expected: print("differs:", sample, expected)
        elif isinstance(sample[1][1], dict):
            print([name for name, member in sample[1][1].items() if member is not expected[1][1][name]])
    print(len(there) == len(CHECKS))
print(open("written.txt").read())
"""


def test_what_a_script_defines_is_the_same_in_its_workers(tmp_path):
    told = run_warm(tmp_path, EVERYTHING, PYTHONWARNINGS="ignore::ResourceWarning")  # of files left open
    assert told.replace("said\n", "") == "['mass', 'all']\nTrue\n" * 2 + "kept\n"


SPAWNED = """
import collections, enum, sys
import torch.multiprocessing
from swift_loader import SwiftLoader

class Split(enum.Enum): TRAIN = "train"
Pair = collections.namedtuple("Pair", "split number")
def double(i): return 2 * i

class Base:
    def __len__(self): return 8
class Set(Base):
    def __getitem__(self, index): return Pair(Split.TRAIN, double(index))
class Numbers(Base):
    def __getitem__(self, index): return Pair("text", double(index))

def as_they_are(samples): return samples

def main(rank, handed):
    with handed:
        handed.start(rank)
        pairs = [pair for batch in handed for pair in batch]
    print(pairs == [Pair(Split.TRAIN, 2 * i) for i in range(8)], {type(pair) is Pair for pair in pairs})
    with SwiftLoader(Numbers, {}, 8, 1, 1, shuffle=False, start_method="spawn", worker_init=lambda _: None) as own:
        own.start(rank)
        pair, = own
    print(type(pair) is Pair, pair.number.tolist(), flush=True)

if __name__ == "__main__":
    handed = SwiftLoader(Set, {}, 4, 1, 1, shuffle=False, collate_fn=as_they_are)
    torch.multiprocessing.start_processes(main, (handed,), nprocs=1, start_method=sys.argv[1])
"""


@pytest.mark.parametrize("method", [slow("spawn"), slow("forkserver")])
def test_a_process_that_multiprocessing_has_spawned_has_loaders_of_the_scripts_classes(method: str, tmp_path):
    assert run_warm(tmp_path, SPAWNED, method) == "True {True}\nTrue [0, 2, 4, 6, 8, 10, 12, 14]\n"


ELSEWHERE = r"""
import importlib.util, os, pathlib, runpy, sys, types
from swift_loader import SwiftLoader

os.makedirs("far/package"); os.makedirs("near")
for place, name in (("far/by_path.py", "by_path"), ("far/package/part.py", "part"),
                    ("far/package/__init__.py", "package"), ("near/beside.py", "beside"),
                    ("near/its_own.py", "its_own"), ("far/run.py", "run"),
                    ("near/shadow.py", "shadow"), ("shadow.py", "another")):
    pathlib.Path(place).write_text(f"NAME = '{name}'\nclass Named:\n def name(self): return NAME\n")
with open("near/beside.py", "a") as file: file.write("import its_own\nPART = its_own.NAME\n")
with open("far/package/__init__.py", "a") as file: file.write("from package import part\n")

def loaded(name, path, parts=None):
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=parts)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

by_path = loaded("by_path", "far/by_path.py")
package = loaded("package", "far/package/__init__.py", ["far/package"])
shadow = loaded("shadow", "near/shadow.py")  # another of that name lies where it would be looked for
sys.path.insert(0, "")
os.chdir("near")
import beside
os.chdir("..")
run = runpy.run_path("far/run.py")
made = types.ModuleType("made")
exec("NAME = 'made'\nclass Named:\n def name(self): return NAME", vars(made))
sys.modules["made"] = made

class Set:
    def __init__(self, named): self.named = named
    def __len__(self): return len(self.named)
    def __getitem__(self, index):
        import by_path
        return self.named[index].name(), by_path.NAME, beside.PART

named = [by_path.Named(), package.Named(), package.part.Named(), shadow.Named(), beside.Named(), run["Named"](),
         made.Named()]
for method in ("forkserver", "spawn"):
    with SwiftLoader(Set, {"named": named}, 7, 1, 1, shuffle=False, start_method=method) as loader:
        loader.start(0)
        print(list(loader))
with SwiftLoader.from_dataset([by_path.Named()] * 2, 2, 1, 1, collate_fn=list, validate=False) as loader:
    loader.start(0)
    print({type(each) is by_path.Named for batch in loader for each in batch})
"""


def test_modules_that_no_search_leads_to_are_found_by_workers(tmp_path):
    names = ["by_path", "package", "part", "shadow", "beside", "run", "made"]
    told = [(names, ["by_path"] * 7, ["its_own"] * 7)]
    assert run_warm(tmp_path, ELSEWHERE) == f"{told}\n{told}\n{{True}}\n"


SHARED = """
import sys
import numpy as np
import torch
from swift_loader import ConfigError, SwiftLoader

COUNT = 1_000_000
def read(name):
    with open(f"/proc/self/{name}") as file: return file.read()

class Tokens(torch.utils.data.Dataset):
    def __init__(self, path, tensor, epochs):
        self.tokens, self.tensor, self.epochs = np.memmap(path, np.uint16, "r"), tensor, epochs
    def __len__(self): return 8
    def __getitem__(self, index):
        private = sum(int(line.split()[1]) for line in read("smaps_rollup").splitlines() if line.startswith("Private"))
        here = [epoch.item() for epoch in self.epochs], int(self.tokens[index]), self.tensor[index * 10, 0].item()
        return *here, private, "/data.bin" in read("maps")

np.arange(65536).astype(np.uint16).tofile("data.bin")
epochs = []
for strategy in ("file_system", "file_descriptor"):
    torch.multiprocessing.set_sharing_strategy(strategy)
    epochs.append(torch.zeros(1, dtype=torch.int64).share_memory_())
tensor = torch.arange(100.0).repeat_interleave(COUNT).view(100, -1)
sent = {"start_method": "forkserver"}
with SwiftLoader.from_dataset(Tokens("data.bin", tensor, epochs), 8, 1, 1, shuffle=False, **sent) as loader:
    loader.start(0)
    for passed in (0, 5):
        for epoch in epochs: epoch += passed
        for _ in range(100):                 # some epochs were made ahead
            (first, second), tokens, numbers, private, is_mapped = next(iter(loader))
            if first[0].item() == second[0].item() == passed:
                break
        print(first[0].item(), second[0].item(), tokens.tolist() == list(range(8)), numbers.tolist()[:3],
              private.max().item() < 200_000, is_mapped.all().item())

class Holds(Tokens):
    def __init__(self, **held): self.parts = [held]
for held in (torch.multiprocessing.Value("i"), (i for i in range(3))):
    try:
        SwiftLoader.from_dataset(Holds(held=held), 4, 1, 1, **sent).start(0)
    except ConfigError as error:
        print(str(error).partition("Give")[0])
"""


def test_tensors_and_mapped_files_are_shared_as_they_are_in_the_script(tmp_path):
    told = run_warm(tmp_path, SHARED).splitlines()
    assert told[:2] == [f"{epoch} {epoch} True [0.0, 10.0, 20.0] True True" for epoch in (0, 5)]
    assert "dataset.parts[0]['held']" in told[2]
    assert "through inheritance" in told[2]
    assert "dataset.parts[0]['held'] is a generator" in told[3]
